"""The entry point: finds the command, runs it, and turns every ending into its exit code."""

from __future__ import annotations

import importlib
import os
import re
import signal
import sys
import threading
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from cluster_cli import settings
from formats.errors import ClusterCliError
from formats.version import __version__
from stages.reporting import Console

COMMANDS = (
    *settings.STAGES,
    *("evaluate", "compare", "savings", "report"),
    *("export", "run", "status", "inspect", "validate", "key"),
    *("config", "clean", "init", "completion"),
)

# What a report of an error should name besides this program's own version.
PACKAGES = ("torch", "transformers", "tokenizers", "numpy", "scikit-learn", "zarr", "deepspeed")

FAILED, USAGE, INTERRUPTED, BROKEN_PIPE, TERMINATED = 1, 2, 130, 141, 143


class ReaderGone(Exception):  # noqa: N818 - nothing went wrong
    """Whoever read our output has closed it (``| head``)."""


class LazyGroup(click.Group):
    """Imports a command's module only when that command is asked for."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except BrokenPipeError as error:
            raise ReaderGone from error  # click would end it with 1

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        return importlib.import_module(f"cluster_cli.{cmd_name}").command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            hint = settings.nearest(args[0], COMMANDS)
            ctx.fail(
                f"there is no command {args[0]!r}{hint}; the commands are {', '.join(COMMANDS)}"
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The first clause of every help text, whole; click would cut it off in the middle."""
        commands = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, re.split(r"[:;.]\s", c.help or "")[0]) for name, c in commands if c]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def show_versions(ctx: click.Context, _: click.Parameter, asked: bool) -> None:
    """The program's version, a line for each other one that matters, and the end."""
    if not asked or ctx.resilient_parsing:
        return
    import platform
    from importlib.metadata import PackageNotFoundError, version

    versions = {"cluster-cli": __version__, "python": platform.python_version()}
    for name in PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "is not installed"
    click.echo("\n".join(f"{name} {found}" for name, found in versions.items()))
    ctx.exit()


@click.group(
    cls=LazyGroup,
    context_settings={
        "auto_envvar_prefix": "CLUSTER_CLI",
        "help_option_names": ["-h", "--help"],
        "max_content_width": 100,
    },
)
@click.option(
    "--version",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=show_versions,
    help="Show the versions of this program and of what it builds on.",
)
@click.option(
    "--config",
    type=click.Path(exists=True, dir_okay=False),
    help="TOML file with a section per command.",
)
@click.option(
    "--set",
    "assignments",
    multiple=True,
    metavar="SECTION.KEY=VALUE",
    help="One setting over the file; repeatable.",
)
@click.option("-q", "--quiet", is_flag=True, help="Only warnings and errors on stderr.")
@click.option("--debug", is_flag=True, help="Show the traceback of an error.")
@click.pass_context
def cli(
    ctx: click.Context, config: str | None, assignments: tuple[str, ...], quiet: bool, debug: bool
) -> None:
    """Choose fine-tuning data by what each example teaches, and feed it to GPUs.

    \b
    cluster-cli score     DATA... --model MODEL          -o signatures.zarr
    cluster-cli cluster   signatures.zarr                -o clusters.zarr
    cluster-cli select    clusters.zarr --fraction 0.31  -o selection.jsonl
    cluster-cli allocate  selection.jsonl --ranks 4      -o allocation/
    cluster-cli train     allocation/ --model MODEL      -o run/

    \b
    cluster-cli init      DATA...                        writes cluster.toml
    cluster-cli run       cluster.toml                   all five, where something has changed

    Data goes to stdout, messages to stderr. Settings: a flag, else --set, else CLUSTER_CLI_COMMAND_KEY in
    the environment, else the --config file, else the default.
    """
    ctx.obj = Console(quiet=quiet)
    settings.apply(ctx, config, assignments)


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Runs the command line and exits the process."""
    sys.exit(run(arguments))


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; the exit code (DESIGN section 8)."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    signal.signal(signal.SIGTERM, _terminate)
    sys.unraisablehook = _raise_again
    # Waiting threads that spin bring two processes on one machine to a standstill: measured, a training
    # step of a tiny model took 25 times as long beside another one, and 1.1 times without spinning.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    os.environ.setdefault("GOMP_SPINCOUNT", "0")
    try:
        result = cli.main(args=arguments, prog_name="cluster-cli", standalone_mode=False)
        sys.stdout.flush()
        return result if isinstance(result, int) else 0
    except click.exceptions.Exit as exit_:
        return exit_.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return USAGE
    except click.UsageError as error:
        where = error.ctx.command_path if error.ctx else "cluster-cli"
        return _say(f"{_one_line(error.format_message()).rstrip('.')}; see `{where} --help`", USAGE)
    except click.ClickException as error:
        return _say(_one_line(error.format_message()), FAILED)
    except ClusterCliError as error:
        problems = error.data.get("problems")  # one a line, where several were found at once
        text = "\nerror: ".join(map(str, problems)) if isinstance(problems, list) else str(error)
        return _fail(error, _from_here(text), error.exit_code, arguments)
    except (KeyboardInterrupt, click.Abort):
        return _say("interrupted", INTERRUPTED)
    except (BrokenPipeError, ReaderGone):
        return _broken_pipe()
    except OSError as error:
        return _fail(error, _one_line(str(error)), FAILED, arguments)
    except Exception as error:
        text = f"{type(error).__name__}: {_one_line(str(error))}"
        return _fail(error, f"{text} (unforeseen; --debug shows where)", FAILED, arguments)


def _fail(error: Exception, text: str, code: int, arguments: Sequence[str]) -> int:
    if "--debug" in arguments:
        import traceback

        traceback.print_exception(error, file=sys.stderr)
    return _say(text, code)


def _say(text: str, code: int) -> int:
    print(f"error: {text}" if code != INTERRUPTED else text, file=sys.stderr, flush=True)
    return code


def _one_line(text: str) -> str:
    return settings.plainly(" ".join(text.split()))


def _from_here(text: str) -> str:
    """Paths below the working folder as the user writes them; workers need them absolute."""
    here = os.path.join(os.getcwd(), "")
    return text if here == os.sep else re.sub(rf"(?<![\w/.-]){re.escape(here)}", "", text)


def _broken_pipe() -> int:
    # The reader has gone (`| head`): nothing is wrong, and Python must not complain at its own exit.
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return BROKEN_PIPE


def _terminate(number: int, frame: Any) -> NoReturn:
    raise SystemExit(TERMINATED)


def _raise_again(lost: Any) -> None:
    """A signal that arrives while an object is finalised raises there, where Python prints it and goes
    on, as may happen when a model is freed between two trainings. It is raised again a little later.
    """
    handlers = {SystemExit: _terminate, KeyboardInterrupt: signal.default_int_handler}
    if lost.exc_type not in handlers or threading.current_thread() is not threading.main_thread():
        sys.__unraisablehook__(lost)
        return
    signal.signal(signal.SIGALRM, handlers[lost.exc_type])
    signal.setitimer(signal.ITIMER_REAL, 0.05)
