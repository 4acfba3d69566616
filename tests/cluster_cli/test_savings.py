"""``savings`` to the letter."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster_cli.main import run
from tests.stages.test_savings import write_run

PUBLISHED = """\
full training  10.00 h
on the subset   3.04 h  69.6 % less, 3.29 times as fast
saved           6.96 h
selection       0.70 h
net saving      6.26 h  62.6 % of full training

One job: selecting pays from 1 epoch on; an epoch saves 6.96 h, and 0.10 of them make up for one selection.
Several jobs, map reused: selecting pays from 1 job on.
Several jobs, a new map for each: selecting pays from 1 job on.

assuming
  training time is linear in tokens, of which the subset has 30.4 %
  same hardware, same batches and same number of epochs for both
  an hour of selecting costs as much as an hour of training
  nothing is said about quality: compare the evaluations
"""

SEVERAL = """\
full training                      10.00 h
on the subset                       3.10 h  69.0 % less, 3.23 times as fast
saved                               6.90 h
selection                           8.00 h
net saving                         -1.10 h  -11.0 % of full training
net of 3 jobs, map reused          12.70 h
net of 3 jobs, a new map for each  -3.30 h

One job: selecting pays from 4 epochs on; an epoch saves 2.30 h, and 3.48 of them make up for one selection.
Several jobs, map reused: selecting pays from 2 jobs on.
Several jobs, a new map for each: selecting never pays; a job of 3 epochs saves 6.90 h, and selecting \
for it costs 8.00 h.
"""


@pytest.mark.parametrize("how", [["--saved", "0.696"], ["--fraction", "0.304"]])
def test_the_published_figures(how: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["savings", "--full-hours", "10", "--selection-hours", "0.7", *how]) == 0
    assert capsys.readouterr().out == PUBLISHED


def test_several_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    line = "savings --full-hours 10 --fraction 0.31 --selection-hours 8 --jobs 3 --epochs 3"
    assert run(line.split()) == 0
    assert capsys.readouterr().out.split("\nassuming")[0] == SEVERAL


def test_a_selection_that_nobody_priced_is_said_to_be_free(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run("savings --full-hours 10 --fraction 0.31".split()) == 0
    assert capsys.readouterr().out.endswith(
        "caution: the hours of selecting are not given (--selection-hours): counted as nothing\n"
    )


def test_two_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    full = write_run(tmp_path / "full", "a", 7200.0)
    part = write_run(tmp_path / "part", "b", 1800.0)
    assert run(["savings", "--full", f"{full}/run.json", "--subset", f"{part}/run.json"]) == 0
    place = f"  {tmp_path}/part-signatures"
    assert capsys.readouterr().out.startswith(
        f"{'full training'.ljust(len(place))}  2.00 h\n"
        f"{'on the subset'.ljust(len(place))}  0.50 h  75.0 % less, 4.00 times as fast\n"
        f"{'saved'.ljust(len(place))}  1.50 h\n"
        f"{'selection'.ljust(len(place))}  0.10 h\n"
        f"{place}  0.10 h\n"
        f"{'net saving'.ljust(len(place))}  1.40 h  70.0 % of full training\n"
    )
    assert run(["savings", "--full", str(full), "--subset", str(part), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["net_hours"], found["pays_from_epoch"]) == (1.4, 1)


@pytest.mark.parametrize(
    "line",
    [
        "--full-hours 10",
        "--fraction 0.3",
        "--full-hours 10 --fraction 0.3 --saved 0.7",
        "--full-hours 10 --fraction 0.3 --selection x",
    ],
)
def test_too_little_or_too_much(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["savings", *line.split()]) == 2
    assert capsys.readouterr().err == (
        "error: give --full-hours and one of --fraction and --saved, or --full and --subset; see "
        "`cluster-cli savings --help`\n"
    )


def test_runs_and_hours_together(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("savings --full a --subset b --full-hours 3".split()) == 2
    assert capsys.readouterr().err == (
        "error: give --full and --subset together, and without --full-hours, --fraction, --saved and "
        "--epochs: the runs say these; see `cluster-cli savings --help`\n"
    )
    assert run("savings --full-hours 3 --saved 1.5".split()) == 2
    assert "--saved 1.5 is no part of the time, 0 to below 1" in capsys.readouterr().err
