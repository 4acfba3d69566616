"""``init``, ``clean`` and ``completion`` as typed."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import click
import pytest

from cluster_cli import pipeline
from cluster_cli.main import cli, run
from tests import tiny
from tests.synthetic import lessons, write_signatures


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in [name for name in os.environ if name.startswith("CLUSTER_CLI_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def opened(file: str) -> list[str]:
    context = click.Context(cli, auto_envvar_prefix="CLUSTER_CLI")
    with pipeline.opened(context, Path(file)) as chain:
        return chain.stages


def test_the_file_fits_the_data_and_runs(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.write_jsonl(here / "train.jsonl", tiny.questions(30))
    assert run(["init", "train.jsonl", "--model", "./base", "--ranks", "3"]) == 0
    assert capsys.readouterr().err == (
        "30 rows have the shape qa\nwrote cluster.toml; `cluster-cli run`\n"
    )
    text = Path("cluster.toml").read_text()
    assert 'data = ["train.jsonl"]  # 30 rows have the shape qa\n' in text
    values = tomllib.loads(text)
    assert values == {
        "paths": {"folder": "work"},
        "score": {"data": ["train.jsonl"], "model": "./base"},
        "cluster": {},
        "select": {"fraction": 0.31},
        "allocate": {"ranks": 3},
        "train": {},
    }
    assert opened("cluster.toml") == ["score", "cluster", "select", "allocate", "train"]


def test_every_default_in_it_is_a_valid_setting(here: Path) -> None:
    """All comments taken away at once."""
    assert run(["-q", "init"]) == 0
    text = re.sub(r"^# ([a-z-]+ = )", r"\1", Path("cluster.toml").read_text(), flags=re.M)
    Path("all.toml").write_text(text)
    assert len(tomllib.loads(text)["train"]) > 5
    assert opened("all.toml") == ["score", "cluster", "select", "allocate", "train"]


def test_without_data_it_says_what_to_fill_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["init", "-o", "mine.toml"]) == 0
    assert capsys.readouterr().err == (
        "wrote mine.toml; fill in data and model, then `cluster-cli run mine.toml`\n"
    )


def test_it_does_not_overwrite(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("cluster.toml").write_text("mine")
    assert run(["init"]) == 2
    assert capsys.readouterr().err == (
        "error: cluster.toml exists; name another with -o, or add --force\n"
    )
    assert Path("cluster.toml").read_text() == "mine"
    assert run(["init", "--force"]) == 0
    assert Path("cluster.toml").read_text() != "mine"


def test_how_the_data_are_read_is_kept(here: Path) -> None:
    tiny.write_jsonl(here / "odd.jsonl", [{"Q": "a", "A": "b"}, {"Q": "c", "A": "d"}])
    fields = ["--field", "prompt=Q", "--field", "response=A", "--limit", "1"]
    assert run(["init", "odd.jsonl", *fields, "-o", "sub.toml", "--on-bad-row", "skip"]) == 0
    score = tomllib.loads(Path("sub.toml").read_text())["score"]
    assert score["field"] == ["prompt=Q", "response=A"]
    assert (score["limit"], score["on-bad-row"]) == (1, "skip")


def test_rows_that_are_left_out_are_counted(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tiny.write_jsonl(here / "some.jsonl", [*tiny.questions(3), {"question": "no answer"}])
    assert run(["init", "some.jsonl", "--on-bad-row", "skip"]) == 0
    assert capsys.readouterr().err.splitlines()[0] == (
        "3 rows have the shape qa; 1 cannot be used and are left out"
    )


def test_paths_are_seen_from_the_files_folder(here: Path) -> None:
    tiny.write_jsonl(here / "train.jsonl", tiny.questions(3))
    (here / "base").mkdir()
    (here / "sub").mkdir()
    assert run(["init", "train.jsonl", "-m", "base", "-o", "sub/c.toml"]) == 0
    score = tomllib.loads(Path("sub/c.toml").read_text())["score"]
    assert (score["data"], score["model"]) == (["../train.jsonl"], "../base")
    assert run(["init", "train.jsonl", "-m", "owner/name", "-o", "d.toml"]) == 0
    assert tomllib.loads(Path("d.toml").read_text())["score"]["model"] == "owner/name"


def test_data_that_nobody_can_read_write_no_file(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny.write_jsonl(here / "odd.jsonl", [{"Q": "a", "A": "b"}])
    assert run(["init", "odd.jsonl"]) == 1
    assert "--field" in capsys.readouterr().err
    assert not Path("cluster.toml").exists()


def leave_rubbish(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    write_signatures(folder / "signatures.zarr.partial", lessons([20])[0])


def clean(*arguments: str, answer: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cluster_cli", "clean", *arguments],
        input=answer,
        stdin=subprocess.DEVNULL if answer is None else None,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
        capture_output=True,
        text=True,
        timeout=60,
    )


def test_clean_lists_asks_and_removes(here: Path) -> None:
    left = here / "signatures.zarr.partial"
    leave_rubbish(here)
    listed = clean("-n")
    assert re.fullmatch(
        r"signatures\.zarr\.partial  half-built output  [\d.]+ KiB\n", listed.stdout
    )
    assert (listed.returncode, listed.stderr, left.exists()) == (0, "", True)
    unanswered = clean()
    assert unanswered.returncode == 2
    assert unanswered.stderr.endswith(
        "error: nobody answered; --yes removes without asking; see `cluster-cli clean --help`\n"
    )
    refused = clean(answer="n\n")
    assert (refused.returncode, left.exists()) == (0, True)
    assert refused.stderr == "remove these 1? [y/N]: nothing removed\n"
    agreed = clean(answer="y\n")
    assert (agreed.returncode, left.exists()) == (0, False)
    assert clean("--yes").stderr == "nothing to clean\n"


def test_clean_looks_where_the_pipeline_writes(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("cluster.toml").write_text(
        '[paths]\nfolder = "out"\n[score]\ndata = "x"\nmodel = "y"\n[cluster]\noutput = "maps/c.zarr"\n'
    )
    for name in ("out", "maps", "elsewhere"):
        leave_rubbish(here / name)
    assert run(["clean", "--yes"]) == 0
    captured = capsys.readouterr()
    assert [line.split()[0] for line in captured.out.splitlines()] == [
        "out/signatures.zarr.partial",
        "maps/signatures.zarr.partial",
    ]
    assert captured.err == "removed 2\n"
    assert run(["clean", "elsewhere", "--yes"]) == 0
    assert not list(here.glob("*/*.partial"))


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_call_this_program(
    shell: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["completion", shell]) == 0
    out = capsys.readouterr().out
    assert "_CLUSTER_CLI_COMPLETE" in out
    assert "cluster-cli" in out


def test_what_the_script_calls_gives_commands_and_options() -> None:
    """As the bash script does it: words and position come through the environment."""

    def completed(words: str) -> list[str]:
        done = subprocess.run(
            [sys.executable, "-c", "from cluster_cli.main import main; main()"],
            env={
                **os.environ,
                "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
                "_CLUSTER_CLI_COMPLETE": "bash_complete",
                "COMP_WORDS": words,
                "COMP_CWORD": str(words.count(" ")),
            },
            capture_output=True,
            text=True,
            timeout=60,
        )
        return [line.removeprefix("plain,") for line in done.stdout.splitlines()]

    assert completed("cluster-cli s") == ["score", "select", "savings", "status"]
    assert completed("cluster-cli run --un") == ["--until"]
    assert completed("cluster-cli run --until al") == ["allocate"]
