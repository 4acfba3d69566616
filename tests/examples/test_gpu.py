"""The GPU check at its smallest, on the CPU: it runs to the end, and what it says can be true."""

from __future__ import annotations

import json
import subprocess
import sys

from tests.prepared import ENVIRONMENT, ROOT

CHECK = ROOT / "examples" / "gpu" / "check.py"


def test_the_check_runs_on_the_cpu() -> None:
    done = subprocess.run(
        [sys.executable, str(CHECK), "--cpu"],
        env=ENVIRONMENT,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["device"], found["ranks"], found["model"]) == ("cpu", 1, "model")
    assert (found["dtype"], found["zero_stage"]) == ("bfloat16", 2)
    assert found["scoring"]["rows"] == 48
    assert found["training"]["steps"] == 12  # 2 epochs of 24 rows in steps of 4
    for part in ("scoring", "training"):
        assert found[part]["tokens_per_second"] > 0
    assert found["training"]["peak_memory_bytes"][0] > 0
    assert found["held_out_loss"]["after"] < found["held_out_loss"]["before"]
    # float32 rounding; the run itself computes in bfloat16, which has 8 bits of precision.
    assert found["exactness"]["loss"] < 1e-5
    assert found["exactness"]["gradient"] < 1e-4
    assert found["exactness"]["trained_loss"] < 1e-2
    assert found["seconds"] < 300
