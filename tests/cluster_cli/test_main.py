"""The frame around the commands: help, its import budget, settings, exit codes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from cluster_cli.main import COMMANDS, PACKAGES, cli, run

HEAVY = ("torch", "transformers", "datasets", "sklearn", "zarr", "deepspeed", "pandas", "pyarrow")


def cluster_cli(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "cluster_cli", *arguments],
        capture_output=True,
        text=True,
        timeout=60,
        **more,  # type: ignore[arg-type]
    )


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_imports_nothing_heavy(command: str) -> None:
    program = (
        "import sys; from cluster_cli.main import run; "
        f"code = run([*{command.split()!r}, '--help']); "
        f"heavy = [m for m in {HEAVY!r} if m in sys.modules]; "
        "sys.exit(f'{code} {heavy}' if code or heavy else 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "Usage: cluster-cli" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["sccore"],
            "error: there is no command 'sccore' (did you mean 'score'?); the commands are "
            f"{', '.join(COMMANDS)}; see `cluster-cli --help`\n",
        ),
        (["--nope"], "error: No such option '--nope'; see `cluster-cli --help`\n"),
        (
            ["score", "x.jsonl", "-o", "s"],
            "error: Missing option '-m' / '--model'; see `cluster-cli score --help`\n",
        ),
        (
            ["--set", "score.rank", "score", "x"],
            "error: --set 'score.rank' is not of the form section.key=value\n",
        ),
        (
            ["--set", "score.rnk=3", "score", "x"],
            "error: --set score has no setting 'rnk' (did you mean 'rank'?)\n",
        ),
        (
            ["--set", "scor.rank=3", "score", "x"],
            "error: --set there is no section 'scor' (did you mean 'score'?)\n",
        ),
        (
            ["--set", "run.until=score", "run"],
            "error: --set there is no section 'run'\n",
        ),
        (
            ["--set", "score.data=x.jsonl", "run"],
            "error: --set cannot give data: name it on the command line or in the file\n",
        ),
        (
            ["--set", "paths.foldr=x", "run"],
            "error: --set paths has no setting 'foldr' (did you mean 'folder'?)\n",
        ),
        (
            ["score", "x", "-m", "m", "-o", "s", "--field", "answer"],
            "error: Invalid value: --field 'answer' is not ROLE=COLUMN with role prompt, response "
            "or system; see `cluster-cli score --help`\n",
        ),
    ],
)
def test_usage_errors_are_one_line_and_exit_2(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == message


def test_all_problems_of_a_configuration_are_shown_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "cluster.toml"
    config.write_text("[score]\nrnk = 3\n[selct]\nseed = 1\n")
    assert run(["--config", str(config), "score", "x"]) == 2
    assert capsys.readouterr().err == (
        f"error: {config}: score has no setting 'rnk' (did you mean 'rank'?)\n"
        f"error: {config}: there is no section 'selct' (did you mean 'select'?)\n"
    )
    config.write_text(
        "[selct]\n[score]\nrank = 3.7\ndims = true\nmodel = 3\n[cluster]\ncentre = 1\n"
    )
    assert run(["--config", str(config), "score", "x"]) == 2
    assert capsys.readouterr().err == (
        f"error: {config}: there is no section 'selct' (did you mean 'select'?)\n"
        f"error: {config}: score.rank is 3.7, not a whole number\n"
        f"error: {config}: score.dims is True, not a whole number\n"
        f"error: {config}: score.model is 3, not a text\n"
        f"error: {config}: cluster.centre is 1, not true or false\n"
    )
    config.write_text("[score\n")
    assert run(["--config", str(config), "score", "x"]) == 2
    assert f"error: {config} is not valid TOML" in capsys.readouterr().err


def test_precedence_is_flag_set_environment_file(tmp_path: Path) -> None:
    """The missing model ends each run; which one is missing shows which setting won."""
    config = tmp_path / "cluster.toml"
    config.write_text('[score]\nmodel = "./from-file"\noutput = "s"\n')
    data = tmp_path / "d.jsonl"
    data.write_text('{"question": "a", "answer": "b"}\n')
    frame = ["--config", str(config)]
    environment = {**os.environ, "CLUSTER_CLI_SCORE_MODEL": "./from-environment"}
    plain = {k: v for k, v in os.environ.items() if not k.startswith("CLUSTER_CLI_")}
    setting = ["--set", "score.model=./from-set"]
    for arguments, env, winner in (
        ([*frame, "score", str(data)], plain, "./from-file"),
        ([*frame, "score", str(data)], environment, "./from-environment"),
        ([*frame, *setting, "score", str(data)], environment, "./from-set"),
        ([*frame, *setting, "score", str(data), "-m", "./flag"], environment, "./flag"),
    ):
        done = cluster_cli(*arguments, env=env, cwd=os.getcwd())
        assert done.stderr == f"error: no model folder at '{winner}'; check the path\n"
        assert done.returncode == 1


def test_a_misspelled_variable_is_not_as_good_as_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("SCORE_RNK", "PATHS_FOLDR", "SCORE_DATA", "TRAIN_SEED", "TOKEN"):
        monkeypatch.setenv(f"CLUSTER_CLI_{name}", "3")
    assert run(["status"]) == 2
    assert capsys.readouterr().err == (
        "error: the environment sets CLUSTER_CLI_SCORE_RNK, and score has no such setting "
        "(did you mean 'CLUSTER_CLI_SCORE_RANK'?)\n"
        "error: the environment sets CLUSTER_CLI_PATHS_FOLDR, and paths has no such setting "
        "(did you mean 'CLUSTER_CLI_PATHS_FOLDER'?)\n"
    )


def test_the_list_of_commands_cuts_no_sentence_off(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--help"]) == 0
    listed = capsys.readouterr().out.partition("Commands:\n")[2]
    assert [line.split()[0] for line in listed.splitlines() if line[2] != " "] == [*COMMANDS]
    assert "..." not in listed


@pytest.mark.parametrize("name", COMMANDS)
def test_every_help_text_explains_its_options_and_has_an_example(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    options = [option for option in command.params if isinstance(option, click.Option)]
    assert [option.opts for option in options if not option.help] == []
    assert f"cluster-cli {name}" in (command.help or "")


def test_version_names_the_program_and_what_it_builds_on() -> None:
    """The other versions are those that the packages themselves say."""
    import numpy
    import zarr

    from formats.version import __version__

    lines = cluster_cli("--version").stdout.splitlines()
    assert lines[0] == f"cluster-cli {__version__}"
    assert lines[1] == "python {}.{}.{}".format(*sys.version_info)
    assert {f"numpy {numpy.__version__}", f"zarr {zarr.__version__}"} <= set(lines)
    assert [line.split()[0] for line in lines[2:]] == [*PACKAGES]


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGINT", 130)])
def test_a_signal_while_an_object_is_finalised_is_not_lost(name: str, code: int) -> None:
    """Python prints an exception of a finaliser and goes on; here it would go on for a minute."""
    script = f"""
import os, signal, sys, time
from cluster_cli import main

class Freed:
    def __del__(self):
        os.kill(os.getpid(), signal.{name})
        time.sleep(0.1)

def work(**_):
    freed = Freed()
    del freed
    time.sleep(60)

signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs are started without it
main.cli.main = work
sys.exit(main.run([]))
"""
    words = [sys.executable, "-c", script]
    assert subprocess.run(words, capture_output=True, timeout=40, check=False).returncode == code
