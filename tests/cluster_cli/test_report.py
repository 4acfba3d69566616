"""``cluster-cli report``: its arguments, where it writes, what it refuses."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from cluster_cli.main import run
from cluster_cli.report import command
from stages.report import FORMATS, report
from tests import prepared
from tests.stages.report import material


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Here is a comparison in ``comparison``."""
    monkeypatch.chdir(tmp_path)
    material.comparison(tmp_path / "comparison")
    return tmp_path


@pytest.fixture(scope="module")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared.untouched(tmp_path_factory) / "work"


def fails(capsys: pytest.CaptureFixture[str], code: int, *arguments: str) -> str:
    assert run(["report", *arguments]) == code
    out, err = capsys.readouterr()
    assert out == ""
    return err.splitlines()[-1]


def test_options_are_the_function_s_arguments() -> None:
    parameters = inspect.signature(report).parameters
    of_stage = {n: p.default for n, p in parameters.items() if n != "reporter"}
    parsed = command.make_context("report", ["run", "-o", "out"]).params
    assert parsed.keys() == of_stage.keys()
    for name in of_stage.keys() - {"source", "output"}:
        assert parsed[name] == of_stage[name], name
    form = next(p for p in command.params if p.name == "form")
    assert list(form.type.choices) == list(FORMATS)  # type: ignore[attr-defined]


def test_a_page_is_written_and_written_again(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        assert run(["report", "comparison", "-o", "new/report.html"]) == 0
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("new/report.html: ")
        assert err.endswith(" kB\n")
    assert (folder / "new/report.html").read_text().startswith("<!doctype html>")
    assert [path.name for path in (folder / "new").iterdir()] == ["report.html"]  # no leftovers
    assert run(["report", "comparison", "--format", "md", "-o", "new/report.html"]) == 0


def test_stdout_holds_the_report_alone(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    short = "<!-- cluster-cli report -->\n### Comparison of 5 arms\n"
    for form, start in (("md", short), ("html", "<!doctype html>")):
        assert run(["report", "comparison/comparison.json", "--format", form, "-o", "-"]) == 0
        out, err = capsys.readouterr()
        assert out.startswith(start)
        assert err == ""


def test_other_files_are_not_replaced(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "notes.html").write_text("<!doctype html><p>mine")
    assert fails(capsys, 1, "comparison", "-o", "notes.html") == (
        "error: notes.html exists and is no report; choose another output, or add --force"
    )
    assert (folder / "notes.html").read_text() == "<!doctype html><p>mine"
    assert run(["report", "comparison", "-o", "notes.html", "--force"]) == 0
    assert "Comparison of 5 arms" in (folder / "notes.html").read_text()
    (folder / "empty.html").touch()
    assert run(["report", "comparison", "-o", "empty.html"]) == 0
    capsys.readouterr()
    assert fails(capsys, 1, "comparison", "-o", "comparison") == (
        "error: comparison is a folder; name a file, such as report.html"
    )
    assert fails(capsys, 1, "comparison", "-o", "comparison", "--force") == (
        "error: comparison is a folder; name a file, such as report.html"
    )


def test_what_is_no_run_is_refused(
    folder: Path, chain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fails(capsys, 1, "nothing", "-o", "r.html") == (
        "error: nothing does not exist; check the path"
    )
    path = chain / "clusters.zarr"
    assert fails(capsys, 1, str(path), "-o", "r.html") == (
        f"error: {path} is clusters; a report is made of a run or a comparison; give the output of "
        f"`cluster-cli train` or `cluster-cli compare`, or look at it with `cluster-cli inspect {path}`"
    )
    assert fails(capsys, 2, "comparison", "--by", "x", "-o", "r.html") == (
        "error: comparison is a comparison: it has evaluations, full runs and groups of its own; drop "
        "--evaluation, --full and --by"
    )
    assert not (folder / "r.html").exists()


def test_neighbours_must_belong_to_the_run(
    folder: Path, chain: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run_ = str(chain / "run")
    other = material.full_run(chain / "run", folder / "other", 5.0)
    material.evaluation(other, folder / "evaluation.json")
    assert fails(capsys, 2, run_, "--evaluation", "evaluation.json", "-o", "r.html") == (
        f"error: evaluation.json is an evaluation of work/run, not of {run_}; evaluate it with "
        f"`cluster-cli evaluate {run_} --data DATA -o evaluation.json`"
    )
    assert fails(capsys, 2, run_, "--full", run_, "-o", "r.html") == (
        f"error: {run_} and {run_} are the same run; give two different ones"
    )
    assert fails(capsys, 2, run_, "--by", "kind", "-o", "r.html").startswith(
        "error: no row has a column 'kind'; its columns are question, answer"
    )
    assert not (folder / "r.html").exists()
