"""Keep what a comparison found for the documentation: `python docs/keep.py work/bench/comparison bank`.

Writes `docs/results/comparison_NAME.json`: sentences and curves as they are, of every arm its rows and
what it saved, and of every trial the deciding metric. One line an entry: a diff shows which changed.
"""

from __future__ import annotations

import json
import sys
from typing import Any

from measurements import RESULTS

sys.path.insert(0, str(RESULTS.parents[1]))

from formats.comparison import Comparison


def kept(found: Comparison) -> dict[str, Any]:
    """What the tables need."""
    metric = found.header.params["metric"]
    return {
        "created_by": found.header.created_by,
        "params": found.header.params,
        "arms": [_arm(arm) for arm in found.arms],
        "verdicts": found.verdicts,
        "curves": found.curves,
        "trials": [_trial(trial, metric) for trial in found.trials],
    }


def _arm(arm: dict[str, Any]) -> dict[str, Any]:
    return {name: arm[name] for name in ("arm", "rows", "savings") if name in arm}


def _trial(trial: dict[str, Any], metric: str) -> dict[str, Any]:
    results = trial["results"]
    by = {
        column: {name: {metric: _figure(of[metric])} for name, of in groups.items() if metric in of}
        for column, groups in results["by"].items()
    }
    overall = {metric: _figure(results["overall"][metric])}
    return {name: trial[name] for name in ("arm", "seed")} | {
        "results": {"overall": overall, "by": by}
    }


def _figure(figure: dict[str, Any]) -> dict[str, Any]:
    return {name: figure[name] for name in ("value", "examples")}


def written(found: dict[str, Any]) -> str:
    """As JSON, one line for each entry of a list."""
    parts = []
    for name, value in found.items():
        if isinstance(value, list):
            lines = (json.dumps(entry, allow_nan=False) for entry in value)
            text = "[\n  " + ",\n  ".join(lines) + "\n ]"
        else:
            text = json.dumps(value, allow_nan=False)
        parts.append(f' "{name}": {text}')
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main() -> None:
    """The command."""
    if len(sys.argv) != 3:
        raise SystemExit("usage: python docs/keep.py COMPARISON NAME")
    output = RESULTS / f"comparison_{sys.argv[2]}.json"
    text = written(kept(Comparison.open(sys.argv[1])))
    output.write_text(text, encoding="utf-8")
    print(f"{output}: {len(text):,} bytes")


if __name__ == "__main__":
    main()
