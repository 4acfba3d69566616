"""``--max-tokens-per-micro-batch`` on the command line and in the pipeline file."""

from __future__ import annotations

from pathlib import Path

import pytest

from cluster_cli.main import run
from formats.allocation import Allocation
from tests.cluster_cli.test_allocate import selection as selection
from tests.cluster_cli.test_pipeline import WHOLE, read, wrong
from tests.cluster_cli.test_pipeline import plain as plain


def test_the_flag(selection: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = selection.parent / "a"
    arguments = ["allocate", str(selection), "--ranks", "2", "-o", str(output)]
    assert run([*arguments, "--max-tokens-per-micro-batch", "200"]) == 0
    steps = Allocation.open(output).steps
    assert capsys.readouterr().err.splitlines()[0] == (
        f"40 examples over 2 ranks: {steps} steps of about {round(40 / steps)} an epoch"
    )
    assert run([*arguments, "--max-tokens-per-micro-batch", "200"]) == 0
    assert capsys.readouterr().err == f"{output} is up to date\n"


def test_rows_and_tokens_contradict_each_other(
    selection: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["allocate", str(selection), "--ranks", "2", "-o", "a", "--micro-batch", "4"]
    assert run([*arguments, "--max-tokens-per-micro-batch", "200"]) == 2
    assert capsys.readouterr().err == (
        "error: --micro-batch 4 says how many rows a micro-batch has, "
        "--max-tokens-per-micro-batch 200 how many tokens; leave one of them out\n"
    )


def test_in_the_file() -> None:
    text = WHOLE.replace("ranks = 2", "ranks = 2\nmax-tokens-per-micro-batch = 4096\nrotate = true")
    given = read(text).arguments["allocate"]
    assert (given["max_tokens_per_micro_batch"], given["rotate"]) == (4096, True)
    assert wrong(text.replace("4096", "0"))[0].startswith(
        "allocate.max-tokens-per-micro-batch: 0 is not in the range x>=1"
    )
    assert wrong(text.replace("rotate = true", "micro-batch = 4")) == [
        "[allocate] --micro-batch 4 says how many rows a micro-batch has, "
        "--max-tokens-per-micro-batch 4096 how many tokens; leave one of them out"
    ]
