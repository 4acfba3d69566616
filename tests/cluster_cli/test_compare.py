"""``compare`` as typed, with real training: results, restarts, and claims it refuses to make."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cluster_cli.main import run
from formats.comparison import Comparison
from tests import prepared, tiny

ARGUMENTS = ("compare", "--data", "dev.jsonl", "--seeds", "1", "-o", "out")


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a finished comparison of two arms."""
    folder = tmp_path_factory.mktemp("compare")
    tiny.save(folder / "model")
    tiny.write_jsonl(folder / "data.jsonl", tiny.questions(prepared.ROWS))
    tiny.write_jsonl(folder / "dev.jsonl", tiny.questions(prepared.ROWS + 8)[-8:])
    (folder / "cluster.toml").write_text(prepared.TOML)
    done = prepared.cluster_cli(*ARGUMENTS, "--arms", "full,cluster", cwd=folder)
    assert done.returncode == 0, done.stderr
    (folder / "stdout").write_text(done.stdout)
    return folder


@pytest.fixture
def folder(compared: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copied = Path(shutil.copytree(compared, tmp_path / "here"))
    monkeypatch.chdir(copied)
    return copied


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The message of a comparison that is refused."""
    assert run([*ARGUMENTS, *arguments]) in (1, 2)
    return capsys.readouterr().err.splitlines()[-1]


def test_the_result_is_a_table_and_sentences(compared: Path) -> None:
    written = Comparison.open(compared / "out")
    assert [arm["arm"] for arm in written.arms] == ["full", "cluster"]
    assert [arm["rows"] for arm in written.arms] == [60, 19]  # 31 % of 60 is 18.6
    lines = (compared / "stdout").read_text().splitlines()
    assert lines[0].split()[:4] == ["arm", "rows", "tokens", "loss"]
    assert [line.split()[0] for line in lines[1:3]] == ["full", "cluster"]
    assert lines[3] == ""
    assert lines[4:] == written.verdicts
    assert "one seed shows no spread, so nothing follows" in lines[4]


def test_the_cost_of_selecting_is_counted_for_those_who_select(compared: Path) -> None:
    full, cluster = Comparison.open(compared / "out").arms
    assert full["selecting_seconds"] == 0
    assert cluster["selecting_seconds"] > 0
    saved = full["training_seconds"] - cluster["training_seconds"]
    net = cluster["savings"]["net_hours"] * 3600
    assert net == pytest.approx(saved - cluster["selecting_seconds"])


def test_models_are_thrown_away_and_a_second_run_needs_none(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert not list(folder.glob("out/cache/train-*/run/model"))
    before = (folder / "out/comparison.json").read_text()
    assert run([*ARGUMENTS, "--arms", "full,cluster", "--json"]) == 0
    said = capsys.readouterr()
    assert [line for line in said.err.splitlines() if " for " in line] == []  # nothing was made
    assert json.loads(said.out)["verdicts"] == Comparison.open(folder / "out").verdicts
    after = json.loads((folder / "out/comparison.json").read_text())
    assert after["trials"] == json.loads(before)["trials"]


def test_a_stage_made_anew_with_the_same_result_has_nothing_trained_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from stages.select import expect

    monkeypatch.setattr(expect, "STAGE_VERSION", expect.STAGE_VERSION + 1)
    before = Comparison.open(folder / "out").trials
    assert run([*ARGUMENTS, "--arms", "full,cluster"]) == 0
    made = [line for line in capsys.readouterr().err.splitlines() if " for " in line]
    assert made == ["select for full-seed0", "select for cluster-seed0"]
    assert Comparison.open(folder / "out").trials == before


def test_a_fraction_measured_already_is_a_point_of_the_curve(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    curve = ["--arms", "full,cluster", "--fraction", "0.5", "--fraction", "0.31"]
    assert run([*ARGUMENTS, *curve]) == 0
    made = [line for line in capsys.readouterr().err.splitlines() if line.startswith("train for ")]
    assert made == ["train for cluster-50-seed0"]
    arms = [arm["arm"] for arm in Comparison.open(folder / "out").arms]
    assert arms == ["full", "cluster 50 %", "cluster 31 %"]

    # What the curve says can be selected by; as with every input, a change of it is noticed.
    (clusters,) = Path().glob("out/cache/cluster-*/clusters.zarr")
    chosen = ["select", str(clusters), "-o", "s.jsonl", "--fraction", "auto", "--curve", "out"]
    assert run([*chosen, "--weights"]) == 0
    found = Comparison.open("out").curves[0]["needed"]["mean"]
    header = json.loads(Path("s.jsonl").read_text().splitlines()[0])
    assert header["stats"]["selected"] == round(60 * round(found, 4))
    assert run(["validate", "s.jsonl"]) == 0
    capsys.readouterr()
    assert run([*chosen, "--weights"]) == 0
    assert capsys.readouterr().err == "s.jsonl is up to date\n"
    assert run(chosen) == 2
    assert capsys.readouterr().err == (
        "error: the curve of out/comparison.json is of another way to choose: weights True (here False); "
        "select as it did, or compare with these settings\n"
    )


def test_another_model_in_the_same_place_is_trained_anew(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.save(folder / "model", seed=1)
    assert run([*ARGUMENTS, "--arms", "full"]) == 0
    made = [line for line in capsys.readouterr().err.splitlines() if " for " in line]
    assert made[0] == "score for full-seed0"
    assert made[-1] == "train for full-seed0"


def test_trajectories_cost_what_training_their_checkpoints_took(folder: Path) -> None:
    many = ["--seeds", "2", "--keep-models"]  # the last --seeds counts
    shutil.rmtree("out/trials")
    assert run([*ARGUMENTS, *many, "--arms", "full"]) == 0
    runs = sorted(r.parent for r in folder.glob("out/cache/train-*/run/model"))
    spent = [json.loads((r / "run.json").read_text())["stats"]["train_seconds"] for r in runs]
    models = [word for r in runs for word in ("--checkpoint", str(r / "model"))]
    assert len(spent) == 2
    assert run([*ARGUMENTS, *many, "--arms", "full,s2l", *models]) == 0
    s2l = Comparison.open(folder / "out").arms[1]
    assert s2l["arm"] == "s2l"
    assert s2l["selecting_seconds"] > sum(spent)


def test_no_saving_is_claimed_for_checkpoints_whose_cost_nobody_knows(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = tiny.save(folder / "other", seed=1)
    models = ["--checkpoint", "model", "--checkpoint", str(other)]
    assert run([*ARGUMENTS, "--arms", "full,s2l", *models]) == 0
    written = Comparison.open(folder / "out")
    assert "savings" not in written.arms[1]
    assert written.verdicts[-1] == (
        "s2l: what its checkpoints cost is not known: no saving is claimed."
    )
    assert run(["report", "out", "-o", "report.html"]) == 0


def test_an_arm_that_is_secretly_the_full_set_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fails(capsys, "--arms", "full", "--arm", "sly=select.fraction=1.0") == (
        "error: the arm sly selects all 60 rows: it is the full set in disguise; lower the fraction, "
        "or leave the arm out"
    )


def test_unequal_budgets_are_refused(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert fails(capsys, "--arms", "cluster", "--arm", "big=select.fraction=0.5") == (
        "error: unequal budgets: big has 30 rows, cluster has 19; give all arms the same "
        "--fraction, or compare by the other --budget"
    )


def test_dev_rows_that_are_training_rows_are_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open("dev.jsonl", "a") as stream:
        stream.write(json.dumps(tiny.questions(5)[4]) + "\n")
    assert fails(capsys) == (
        "error: 1 of 9 rows of the evaluation data are among the training data (the first: "
        "dev.jsonl:9); take them out of one of the two: rows seen in training say nothing "
        "about others"
    )


def test_a_setting_that_would_undo_the_arms_is_refused(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["--set", "select.method=random", *ARGUMENTS, "--arms", "cluster"]) == 2
    assert capsys.readouterr().err == (
        "error: arm cluster changes select.method, which --set or CLUSTER_CLI_SELECT_METHOD has fixed; "
        "take that back\n"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--arms", "ful"], "error: there is no arm 'ful' (did you mean 'full'?); arms are full, "),
        (["--arms", "s2l"], "error: the arm s2l needs --checkpoint EARLIER --checkpoint LATER"),
        (["--metric", "accuracyy"], "error: metric is 'accuracyy'; use one of loss, token_loss, "),
        (
            ["--arm", "x=select.quota=fair"],
            "error: arm x: cluster.toml: select.quota: 'fair' is neither a number nor one of equal, ",
        ),
        (
            ["--arm", "x=selekt.quota=sqrt"],
            "error: arm x: there is no section 'selekt' (did you mean 'select'?)",
        ),
        (
            ["nothing.toml"],
            "error: there is no file nothing.toml; write one with `cluster-cli init",
        ),
    ],
)
def test_mistakes_are_named(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert fails(capsys, *arguments).startswith(message)
