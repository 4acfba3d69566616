"""What the demo shows at its end: figures counted from the artifacts, and three tables of them."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any


def _jsonl(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def agreement(work: Path) -> dict[str, dict[str, float]]:
    """How well clusters match skills, and topics, over the clustered rows.

    Returns:
        by "skill" and "topic": ``adjusted_rand`` (Hubert and Arabie 1985; 0 is chance),
        ``mutual_information`` (normalised, 0 to 1) and ``purity``, the share of rows whose label is
        their cluster's most frequent one.
    """
    import zarr
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    rows = _jsonl(work / "train.jsonl")
    cluster = zarr.open_group(work / "clusters.zarr", mode="r")["label"][:]
    kept = [i for i, label in enumerate(cluster) if label >= 0]
    found = [int(cluster[i]) for i in kept]
    matches = {}
    for name in ("skill", "topic"):
        truth = [rows[i][name] for i in kept]
        matches[name] = {
            "adjusted_rand": float(adjusted_rand_score(truth, found)),
            "mutual_information": float(normalized_mutual_info_score(truth, found)),
            "purity": purity(truth, found),
        }
    return matches


def purity(truth: list[str], found: list[int]) -> float:
    """Share of rows that carry the most frequent label of their cluster."""
    most: dict[int, int] = {}
    for (cluster, _), count in Counter(zip(found, truth, strict=True)).items():
        most[cluster] = max(most.get(cluster, 0), count)
    return sum(most.values()) / len(truth)


def shares(work: Path) -> dict[str, dict[str, float]]:
    """By skill: ``rows`` of the bank, ``selected`` of them, and their summed loss ``weight``."""
    rows = _jsonl(work / "train.jsonl")
    counted = {
        skill: {"rows": count, "selected": 0, "weight": 0.0}
        for skill, count in Counter(row["skill"] for row in rows).most_common()
    }
    for chosen in _jsonl(work / "selection-selected.jsonl")[1:]:
        of_skill = counted[rows[chosen["row"]]["skill"]]
        of_skill["selected"] += 1
        of_skill["weight"] += chosen["weight"]
    return counted


def net_saving(result: dict[str, Any]) -> float:
    """Seconds of training saved, less the seconds that choosing the rows cost."""
    full, selected = (result["arms"][arm]["run"]["train_seconds"] for arm in ("full", "selected"))
    return full - selected - sum(result["selection_seconds"].values())


def mean_as_in_bank(result: dict[str, Any], model: str) -> float:
    """Accuracy with every skill counted by its share of the training rows."""
    skills, share = result["accuracy"][model]["skills"], result["shares"]
    total = sum(share[skill]["rows"] for skill in skills)
    return sum(skills[s]["accuracy"] * share[s]["rows"] for s in skills) / total


def show(result: dict[str, Any]) -> None:
    """Prints the tables on stdout, and in a sentence where selected training lost."""
    from rich.console import Console

    console = Console()
    for table in (_lessons(result), _costs(result), _accuracies(result)):
        console.print(table)
    console.print(verdict(result))


def verdict(result: dict[str, Any]) -> str:
    """What came of it, the losses first."""
    before, selected, full = (result["accuracy"][model] for model in ("before", "selected", "full"))
    lost = [
        f"{skill} ({figures['accuracy'] - selected['skills'][skill]['accuracy']:.0%})"
        for skill, figures in full["skills"].items()
        if figures["accuracy"] > selected["skills"][skill]["accuracy"]
    ]
    gap = full["macro"] - selected["macro"]
    gained = full["macro"] - before["macro"]
    saved = net_saving(result)
    where = f"behind full training on {len(lost)} skills: {', '.join(lost)}" if lost else ""
    return (
        f"Selected training is {where or 'behind full training on no skill'}. "
        f"Its mean over skills is {abs(gap):.1%} {'below' if gap > 0 else 'above'} full training, "
        f"which gained {gained:.1%} over the base. Choosing rows "
        f"{'saved' if saved > 0 else 'cost'} {abs(saved):.0f} s on balance."
    )


def _grid(title: str, *columns: str) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(title=title, box=SIMPLE_HEAD, title_justify="left")
    grid.add_column(columns[0])
    for column in columns[1:]:
        grid.add_column(column, justify="right")
    return grid


def _lessons(result: dict[str, Any]) -> Any:
    grid = _grid("Do clusters match ...", "", "skills", "topics")
    match = result["agreement"]
    names = {
        "adjusted_rand": "adjusted Rand index",
        "mutual_information": "normalised mutual information",
        "purity": "purity",
    }
    for key, name in names.items():
        grid.add_row(name, f"{match['skill'][key]:.2f}", f"{match['topic'][key]:.2f}")
    return grid


def _costs(result: dict[str, Any]) -> Any:
    grid = _grid("What it cost", "", "full", "selected")
    arms = [result["arms"][name] for name in ("full", "selected")]
    chosen, runs = [arm["selection"] for arm in arms], [arm["run"] for arm in arms]
    cost = sum(result["selection_seconds"].values())
    grid.add_row("rows", *(f"{c['selected']:,}" for c in chosen))
    grid.add_row("clusters among them", *(f"{c['clusters_represented']:,}" for c in chosen))
    grid.add_row("effective sample size", *(f"{c['effective_sample_size']:,.0f}" for c in chosen))
    grid.add_row("tokens trained on", *(f"{r['tokens']:,}" for r in runs))
    grid.add_row("seconds of training", *(f"{r['train_seconds']:.1f}" for r in runs))
    grid.add_row("seconds of score + cluster + select", "", f"{cost:.1f}")
    grid.add_row("net saving, seconds", "", f"{net_saving(result):.1f}")
    return grid


def _accuracies(result: dict[str, Any]) -> Any:
    models = ("before", "selected", "full")
    grid = _grid("What it taught (dev accuracy)", "skill", "rows", "chosen", *models)
    for skill, share in result["shares"].items():
        marks = [result["accuracy"][model]["skills"].get(skill) for model in models]
        shown = [f"{mark['accuracy']:.0%}" if mark else "" for mark in marks]
        grid.add_row(skill, str(share["rows"]), str(share["selected"]), *shown)
    grid.add_section()
    macro = [f"{result['accuracy'][model]['macro']:.1%}" for model in models]
    grid.add_row("mean over skills", "", "", *macro)
    grid.add_row(
        "mean over rows", "", "", *(f"{mean_as_in_bank(result, model):.1%}" for model in models)
    )
    return grid
