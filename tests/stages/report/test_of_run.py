"""The report of a run: figures recomputed from its artifacts, what is missing, dangerous data, size."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.allocation import Allocation
from formats.clusters import Clusters
from formats.selection import read_selection
from formats.signatures import Signatures
from stages.cluster import cluster
from stages.inspect.cards import cards
from stages.report import report
from stages.report.balance import work
from stages.report.choice import mix_of_clusters
from stages.report.document import Report, Section
from stages.report.lessons import SAMPLE, lessons, project
from stages.report.page import page
from tests import prepared, synthetic
from tests.stages.report import material
from tests.stages.report.material import Tables
from tests.synthetic import write_clusters, write_signatures


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A chain whose rows are dangerous to show, an evaluation, and a run on everything of 1,000 s."""
    made = prepared.copy(tmp_path_factory, tmp_path_factory.mktemp("report") / "project")
    rows = [
        {
            "question": f"<script>alert({i})</script>",
            "answer": "<img src=x onerror=alert(1)>",
            "source": "<b>x</b>" if i % 3 else "y",
        }
        for i in range(prepared.ROWS)
    ]
    material.shown_rows(made, rows)
    material.evaluation(made / "work" / "run", made / "evaluation.json")
    material.full_run(made / "work" / "run", made / "full", 1000.0)
    return made


def written(folder: Path, output: Path, **more: Any) -> str:
    report(folder / "work" / "run", output, **more)
    return output.read_text()


@pytest.fixture(scope="module")
def made(folder: Path) -> str:
    given = {"evaluation": folder / "evaluation.json", "full": folder / "full"}
    return written(folder, folder / "report.html", **given)


@pytest.fixture(scope="module")
def tables(made: str) -> dict[str, list[list[str]]]:
    return Tables(made).tables


def test_every_part_is_there(made: str) -> None:
    names = re.findall(r'<section id="(\w+)">', made)
    assert names == [
        *("lessons", "coverage", "mix", "weights", "balance", "training", "evaluation", "costs"),
        "provenance",
    ]
    assert "cannot be shown" not in made
    for title in (
        *("Map of the rows by what they teach", "Rows in each cluster", "Training loss"),
        *("How much of the data a selection covers", "The mix of lessons, before and after"),
        *("The mix by source, before and after", "Weights of the selected examples"),
        *("Learning rate", "Exact match by kind"),
    ):
        assert f"<figcaption>{title}</figcaption><svg" in made
    assert "One rank does all the work: there is nothing to balance." in made


def test_clusters_and_the_mix(tables: dict[str, list[list[str]]], folder: Path) -> None:
    source = Clusters.open(folder / "work" / "clusters.zarr")
    chosen = read_selection(folder / "work" / "selection.jsonl")
    for k, line in enumerate(tables["All clusters"][1:]):
        rows = np.flatnonzero(source.label == k)
        taken = int((chosen.cluster == k).sum())
        assert line[:3] == [str(k), str(len(rows)), f"{100 * len(rows) / 60:.1f} %"]
        assert line[4] == str(taken)
    value = np.array(["<b>x</b>" if row % 3 else "y" for row in range(60)])
    for name, *cells in tables["Mix by source"][1:]:
        inside = value[chosen.row] == name
        heavy = chosen.weight[inside].sum() / chosen.weight.sum()
        assert cells == [
            str((value == name).sum()),
            str(inside.sum()),
            f"{100 * (value == name).mean():.1f} %",
            f"{100 * inside.mean():.1f} %",
            f"{100 * heavy:.1f} %",
        ]
    assert "by weight 0.0 %" in str(mix_of_clusters(source, chosen).note)  # what weights are for


def test_evaluation_by_group(tables: dict[str, list[list[str]]]) -> None:
    assert tables["Figures"] == [
        ["", "group", "examples", "loss", "exact match"],
        ["all", "", "40", "1.2500 [1.1500,\u00a01.4500]", "0.625"],
        ["kind", "a", "30", "1.0000 [0.9000,\u00a01.2000]", "0.750"],
        ["kind", "<i>b</i>", "10", "2.0000 [1.9000,\u00a02.2000]", "0.250"],
    ]
    assert tables["Tasks of the lm-evaluation-harness"][1:] == [["medmcqa", "acc,none", "0.5000"]]


def test_costs_are_those_recorded(tables: dict[str, list[list[str]]], folder: Path) -> None:
    saving = {row[0]: row[1:] for row in tables["Saving"][1:]}
    seconds = json.loads((folder / "work/run/run.json").read_text())["stats"]["train_seconds"]
    assert saving["full training"] == ["0.28 h", "100.0 %"]
    assert saving["saved"][1] == f"{100 - seconds / 10:.1f} %"
    stages = [row[0] for row in tables["Time of each stage"][1:]]
    assert stages == ["score", "cluster", "select", "allocate", "train"]


def test_provenance_names_every_artifact(made: str, folder: Path) -> None:
    for name in ("run/run.json", "allocation/manifest.json"):
        assert json.loads((folder / "work" / name).read_text())["key"] in made
    assert f"{folder}/data.jsonl" in made
    assert "learning_rate=0.001" in made
    assert "method=cluster  fraction=0.31  quota=sqrt" in made
    assert "torch 2." in made
    assert "(as recorded)" in made


def test_data_are_text_and_nothing_else(made: str) -> None:
    assert made.count("<script") == 1
    assert not {"img", "b", "i"} & set(Tables(made).tags)
    assert "&lt;script&gt;alert(" in made


def test_the_same_run_gives_the_same_bytes(folder: Path, tmp_path: Path, made: str) -> None:
    given = {"evaluation": folder / "evaluation.json", "full": folder / "full"}
    assert written(folder, tmp_path / "r.html", **given) == made


def test_the_short_text(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report(folder / "work" / "run", "-", form="md", evaluation=folder / "evaluation.json")
    out = capsys.readouterr().out
    head = "<!-- cluster-cli report -->\n### Fine-tuning run work/run\n\nOf 60 training rows, 19 (31.7 %) "
    assert out.startswith(head + "were selected from 4 lessons, ")
    assert "| Evaluated exact match | 0.625 | 40 examples |\n" in out
    assert (
        "| stage | result | key | time |\n| --- | --- | --- | ---: |\n| score | 60 of 60 rows"
        in out
    )
    assert len(out) < 2500


def test_what_is_missing_is_said(folder: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(folder, tmp_path / "p"))
    shutil.rmtree(here / "work" / "signatures.zarr")
    (here / "shown.jsonl").unlink()
    made = written(here, tmp_path / "a.html")
    for said in (
        f"No map of the rows: the signatures are not there ({here}/work/signatures.zarr is missing).",
        f"The texts of the examples cannot be shown: the data file {here}/shown.jsonl is missing.",
    ):
        assert said in made
    assert "needs the signatures of" in made  # the coverage curve does
    assert "What was saved is not known" in made
    assert "Nothing is known about the quality" in made
    shutil.rmtree(here / "work" / "allocation")
    made = written(here, tmp_path / "b.html")
    for what in ("allocation is", "selection is", "cluster map is"):
        missing = f"This cannot be shown: the {what} not there ({here}/work/allocation is missing)."
        assert missing in made
    assert "<figcaption>Training loss</figcaption>" in made
    assert "A model was then trained on a selection that is not there for 10 steps" in made


def test_what_has_changed_is_said(folder: Path, tmp_path: Path) -> None:
    here = Path(shutil.copytree(folder, tmp_path / "p"))
    path = here / "work" / "clusters.zarr" / "zarr.json"
    group = json.loads(path.read_text())
    group["attributes"]["key"] = "0" * 64
    path.write_text(json.dumps(group))
    made = written(here, tmp_path / "a.html")
    assert f"{here}/work/clusters.zarr has changed since it was used" in made


def test_work_of_ranks_is_rows_times_the_longest(tmp_path: Path, folder: Path) -> None:
    plan = Allocation.open(folder / "work" / "allocation")
    planned, random = work(plan)
    batches = [batch for batch in plan.rank(0) if batch.epoch == 0]
    assert planned[:, 0].tolist() == [len(b.tokens) * max(b.tokens) for b in batches]
    assert planned.shape == random.shape == (5, 1)  # 19 rows by fours


def test_a_thousand_clusters_stay_below_a_megabyte(tmp_path: Path) -> None:
    """Every text is as long as it is shown, and of three-byte letters."""
    rows = [{"question": f"{i} " + "語" * 120, "answer": "語" * 80} for i in range(4000)]
    material.tiny.write_jsonl(tmp_path / "shown.jsonl", rows)
    source = write_clusters(tmp_path / "work" / "clusters.zarr", np.arange(4000) % 1000)
    material.shown_rows(tmp_path, rows)
    opened = Clusters.open(source)
    blocks = lessons(opened, cards(opened, 1), None, None, "none")
    text = page(Report("t", "l", [], [], [Section("lessons", "Lessons", blocks)]))
    assert text.count("<article") == 120  # the 100 largest and the 20 smallest
    assert "語" * 40 in text
    assert len(Tables(text).tables["All clusters"]) == 1001
    assert len(text.encode()) < 600_000


def test_the_map_is_the_plane_of_most_variance(tmp_path: Path) -> None:
    """Against the singular values of the same centred rows."""
    path = write_signatures(tmp_path / "s.zarr", synthetic.lessons([1200, 800, 300], noise=0.5)[0])
    cluster(path, tmp_path / "c.zarr", clusters=3)
    clusters, source = Clusters.open(tmp_path / "c.zarr"), Signatures.open(path)
    rows, place, held = project(clusters, source)
    assert len(rows) == len(set(rows.tolist())) == SAMPLE
    assert np.array_equal(rows, project(clusters, source)[0])
    unit = source.column("signature")[rows].astype(np.float64) - clusters.column("centre")
    unit /= np.linalg.norm(unit, axis=1)[:, None]
    strength = np.linalg.svd(unit - unit.mean(axis=0), compute_uv=False) ** 2
    assert held == pytest.approx(strength[:2].sum() / strength.sum(), rel=1e-3)
    assert (place**2).sum() == pytest.approx(strength[:2].sum(), rel=1e-3)
