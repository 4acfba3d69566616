"""What reports are made of in tests: a run with known neighbours, a comparison with known figures."""

from __future__ import annotations

import json
import shutil
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.comparison import KIND, NAME, write_comparison
from formats.data import open_dataset
from formats.evaluation import KIND as EVALUATION
from formats.evaluation import write_evaluation
from stages.compare.summary import summarise, verdicts
from tests import tiny


class Tables(HTMLParser):
    """Reads a page: every table by its caption, as rows of texts, and all text and tags."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tables: dict[str, list[list[str]]] = {}
        self.tags: list[str] = []
        self.text = ""
        self._rows: list[list[str]] = []
        self._caption = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag == "caption":
            self._caption, self._rows = True, []
        elif tag == "tr":
            self._rows.append([])
        elif tag in ("td", "th"):
            self._rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        self._caption = False if tag == "caption" else self._caption

    def handle_data(self, data: str) -> None:
        self.text += data
        if self._caption:
            self.tables[data] = self._rows
        elif self._rows and self._rows[-1] and self.lasttag in ("td", "th"):
            self._rows[-1][-1] += data.strip("\n")


def shown_rows(folder: Path, rows: list[dict[str, Any]]) -> None:
    """Lets the cards of a prepared chain in ``folder`` show these rows, as many as there were."""
    data = tiny.write_jsonl(folder / "shown.jsonl", rows)
    with open_dataset([str(data)]) as dataset:
        reference = dataset.reference(folder / "work")
    for path in (folder / "work" / "clusters.zarr" / "zarr.json",):
        group = json.loads(path.read_text())
        group["attributes"]["dataset"] = reference
        path.write_text(json.dumps(group))


def evaluation(run: Path, path: Path) -> Path:
    """An evaluation of a run: 40 examples in two groups, one of them with a dangerous name."""
    header = artifacts.read_header(run, "run")

    def figures(loss: float, right: float, examples: int) -> dict[str, Any]:
        return {
            "loss": {"value": loss, "low": loss - 0.1, "high": loss + 0.2, "examples": examples},
            "exact_match": {"value": right, "low": None, "high": None, "examples": examples},
        }

    groups = {"a": figures(1.0, 0.75, 30), "<i>b</i>": figures(2.0, 0.25, 10)}
    write_evaluation(
        path,
        artifacts.Header(
            EVALUATION,
            "e" * 64,
            {"by": ["kind"]},
            [{"path": "work/run", "sha256": header.key, "rows": None}],
        ),
        results={"overall": figures(1.25, 0.625, 40), "by": {"kind": groups}},
        tasks={"medmcqa": {"acc,none": 0.5, "alias": "medmcqa"}},
        examples={"row": [], "id": [], "groups": {}},
    )
    return path


def full_run(run: Path, path: Path, seconds: float) -> Path:
    """A copy of a run that is another one and took so long."""
    shutil.copytree(run, path, ignore=shutil.ignore_patterns("model", "checkpoints"))
    header = json.loads((path / "run.json").read_text())
    header["key"] = "f" * 64
    header["stats"]["train_seconds"] = seconds
    (path / "run.json").write_text(json.dumps(header))
    return path


def trial(
    arm: str, seed: int, rows: int, loss: float, seconds: tuple[float, float]
) -> dict[str, Any]:
    """What ``compare`` measures of one arm and seed; group b is worse than a by 0.5."""

    def figure(value: float, examples: int) -> dict[str, Any]:
        figure = {"value": value, "low": value - 0.1, "high": value + 0.1, "examples": examples}
        return {"loss": figure}

    training, selecting = seconds
    return {
        "key": f"{arm}{seed}",
        "arm": arm,
        "seed": seed,
        "select": {"selected": rows, "effective_sample_size": rows - 1.0},
        "train": {
            "steps": rows // 2,
            "tokens": 10 * rows,
            "train_seconds": training,
            "wait_seconds": [0.0, 1.0],
        },
        "epochs": 2,
        "seconds": {"score": 10.0, "cluster": 2.0, "select": 0.5, "train": training},
        "selecting_seconds": selecting,
        "cost_is_known": True,
        "results": {
            "overall": figure(loss, 8),
            "by": {"kind": {"a": figure(loss - 0.25, 4), "b": figure(loss + 0.25, 4)}},
        },
    }


ARMS = {  # label: rows, loss with seed 0, of training and selecting the seconds
    "full": (1000, 1.0, (7200.0, 0.0)),
    "random 10 %": (100, 1.5, (720.0, 0.0)),
    "random 31 %": (310, 1.3, (2232.0, 0.0)),
    "cluster 10 %": (100, 1.4, (720.0, 3600.0)),
    "cluster 31 %": (310, 1.1, (2232.0, 3600.0)),
}


def comparison(folder: Path, arms: dict[str, Any] | None = None) -> Path:
    """``comparison.json`` of two seeds; the second one's losses are 0.02 higher."""
    trials: list[dict[str, Any]] = []
    by_arm: dict[str, list[dict[str, Any]]] = {}
    for arm, (rows, loss, seconds) in (arms or ARMS).items():
        by_arm[arm] = [trial(arm, seed, rows, loss + 0.02 * seed, seconds) for seed in (0, 1)]
        trials += by_arm[arm]
    lines = summarise(by_arm, {arm: f"what {arm} is" for arm in by_arm}, "loss", 0.01)
    said = verdicts(lines, "loss", 0.01, 2)
    params = {"metric": "loss", "margin": 0.01, "budget": "rows", "seeds": 2}
    inputs = [{"path": "train.jsonl", "sha256": "a" * 64, "rows": None}]
    header = artifacts.Header(KIND, "c" * 64, params, inputs)
    folder.mkdir(parents=True, exist_ok=True)
    write_comparison(folder / NAME, header, arms=lines, verdicts=said, trials=trials)
    return folder
