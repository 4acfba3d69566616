"""Maps made by several processes: the same bytes as by one."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from formats.errors import ArtifactError, OutputBusyError
from stages.cluster import cluster
from tests.stages.cluster.same import files
from tests.synthetic import Notes, lessons, make_ids, write_signatures

SETTINGS = {"clusters": 12, "sample": 200}


@pytest.fixture
def signatures(tmp_path: Path) -> Path:
    """Rows of which only a part is fitted, in blocks that do not divide evenly; one block is unusable."""
    rows, _ = lessons([150] * 4, dims=24, noise=1.2)
    status = np.where((np.arange(600) >= 74) & (np.arange(600) < 111), 2, 0)
    return write_signatures(tmp_path / "s.zarr", rows, status=status, block=37)


def test_several_ranks_give_the_same_bytes(signatures: Path) -> None:
    one, two = (signatures.parent / name / "c.zarr" for name in ("one", "two"))
    cluster(signatures, one, **SETTINGS)
    notes = Notes()
    header = cluster(signatures, two, ranks=2, reporter=notes, **SETTINGS)
    assert files(one) == files(two)
    assert [path.name for path in two.parent.iterdir()] == ["c.zarr"]
    assert header.stats["clusterable"] == 563
    assert notes.messages[-1].startswith("563 rows (563 distinct) in 12 clusters of ")
    cluster(signatures, two, ranks=2, reporter=notes, **SETTINGS)
    assert notes.messages[-1] == f"{two} is up to date"


def test_the_error_of_a_rank_is_raised_and_the_old_map_stays(signatures: Path) -> None:
    output = signatures.parent / "c.zarr"
    cluster(signatures, output, **SETTINGS)
    before = files(output)
    (signatures / "signature" / "c" / "1" / "0").write_bytes(b"damaged")  # a block of rank 1
    with pytest.raises(ArtifactError, match="array signature cannot be read"):
        cluster(signatures, output, ranks=2, seed=1, **SETTINGS)
    assert files(output) == before
    assert not output.with_name("c.zarr.work").exists()


# What one rank of somebody else's launch does: three maps, one after another.
EVERY_WAY = """
import sys
from pathlib import Path
from stages.cluster import cluster
old, new, to = map(Path, sys.argv[1:])
cluster(old, to / "a.zarr", clusters=4)
cluster(new, to / "b.zarr", reuse=to / "a.zarr", extend=True)
cluster(new, to / "c.zarr", reuse=to / "a.zarr", refit=True, sample=150)
cluster(new, to / "d.zarr", sample=300)
cluster(new, to / "d.zarr", sample=300)
"""


def test_ranks_of_somebody_elses_launch_work_together(signatures: Path) -> None:
    """Fresh, extended, refitted and automatic maps, under torchrun with two processes."""
    folder = signatures.parent
    rows = lessons([150] * 4, dims=24, noise=0.5)[0]
    strange = np.random.default_rng(1).normal(size=(1, 24)) + np.zeros((40, 1))
    changed = np.concatenate([rows[:560], strange + 0.1 * rows[560:]])
    write_signatures(folder / "old.zarr", rows, block=50)
    write_signatures(folder / "new.zarr", changed, block=50, ids=make_ids(np.arange(600) + 5))
    for ranks in ("one", "two"):
        (folder / ranks).mkdir()
        launcher = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        program = folder / "program.py"
        program.write_text(EVERY_WAY)
        arguments = [str(program), str(folder / "old.zarr"), str(folder / "new.zarr")]
        done = subprocess.run(
            [sys.executable, *(launcher if ranks == "two" else []), *arguments, folder / ranks],
            env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.getcwd()},
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
    assert files(folder / "one") == files(folder / "two")
    assert sorted(path.name for path in (folder / "two").iterdir()) == [
        *("a.zarr", "b.zarr", "c.zarr", "d.zarr")
    ]


@pytest.mark.slow
def test_a_busy_output_ends_every_rank(signatures: Path) -> None:
    """Rank 0 finds the lock taken and says so; the other does not wait for ever."""
    from formats import artifacts

    output = signatures.parent / "c.zarr"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", "-m", "cluster_cli", "cluster", str(signatures)]
    with artifacts.locked(output):
        with pytest.raises(OutputBusyError):
            cluster(signatures, output, ranks=2)
        done = subprocess.run(
            [*command, "-o", str(output), "-k", "3"],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 1
    assert f"error: {output} is being written by process {os.getpid()}" in done.stderr
    assert not output.exists()
