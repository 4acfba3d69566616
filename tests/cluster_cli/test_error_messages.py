"""What a user is told for a mistake: all of stderr and the exit code, as ``errors.txt`` has them typed.

All of these are found before a model is loaded. What goes wrong later is tested with its stage.
"""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

from cluster_cli.main import COMMANDS, run
from stages.select import select
from tests import tiny
from tests.synthetic import lessons, write_clusters, write_signatures


def make(folder: Path) -> None:
    """A place to make mistakes in: data in several states, a model, artifacts and pipeline files."""
    tiny.save(folder / "model")
    tiny.write_jsonl(folder / "rows.jsonl", tiny.questions(9))
    (folder / "empty.jsonl").write_text("")
    (folder / "broken.jsonl").write_text('{"question": "a", "answer": "b"}\n{"question"\n[1]\n')
    (folder / "rows.txt").write_text("a\n")
    (folder / "table.csv").write_text("Q,A\nwhat,that\n")
    (folder / "work").mkdir()
    write_signatures(folder / "work" / "signatures.zarr", lessons([10, 10])[0])
    clusters = write_clusters(folder / "work" / "clusters.zarr", np.repeat([0, 1], 10))
    select(clusters, folder / "work" / "selection.jsonl", count=6)
    chain = '[score]\ndata = "rows.jsonl"\nmodel = "model"\n[select]\ncount = 3\n'
    (folder / "chain.toml").write_text(chain)
    (folder / "twice.toml").write_text("[score]\nrank = 1\nrank = 2\n")
    (folder / "wrong.toml").write_text("[score]\nrnk = 4\n[selct]\n[allocate]\nranks = 0\n")
    (folder / "lone.toml").write_text(f'[paths]\nfolder = "elsewhere"\n{chain}')
    (folder / "nodata.toml").write_text(chain.replace("rows", "gone"))


TYPED = (Path(__file__).parent / "errors.txt").read_text(encoding="utf-8")
SITUATIONS = re.findall(r"^\$ cluster-cli (.*)\n((?:.*\n)*?)\[exit (\d)\]$", TYPED, re.MULTILINE)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[Path]]:
    """The folder, and what is in it."""
    folder = tmp_path_factory.mktemp("mistakes")
    make(folder)
    return folder, sorted(folder.rglob("*"))


@pytest.fixture(autouse=True)
def here(place: tuple[Path, list[Path]], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("CLUSTER_CLI_")]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(place[0])


def test_every_command_has_mistakes_in_the_list() -> None:
    lines = [line for line, _, _ in SITUATIONS]
    assert len(lines) == len(set(lines)) == TYPED.count("$ cluster-cli ") > 60
    assert {*COMMANDS} <= {word for line in lines for word in line.split()}


@pytest.mark.parametrize(("line", "said", "code"), SITUATIONS, ids=[s[0] for s in SITUATIONS])
def test_the_message_the_exit_code_and_nothing_left_behind(
    line: str,
    said: str,
    code: str,
    place: tuple[Path, list[Path]],
    capsys: pytest.CaptureFixture[str],
) -> None:
    folder, before = place
    assert run(shlex.split(line)) == int(code)
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", said)
    assert sorted(folder.rglob("*")) == before
