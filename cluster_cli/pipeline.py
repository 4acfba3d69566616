"""The pipeline file: TOML with a section per stage, turned into what ``stages.pipeline`` takes.

Values go through the very options of the commands, so a key means here what the flag means there, and
``--set`` and the environment stand above the file as everywhere.
"""

from __future__ import annotations

import contextlib
import dataclasses
import inspect
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from cluster_cli import settings
from cluster_cli.options import PATH, parse_fields, read_template
from formats.errors import ClusterCliError, SettingError

if TYPE_CHECKING:
    from stages.pipeline import Pipeline

DEFAULT = "cluster.toml"
FOLDER = "work"
# Options that are said to ``run``, or that it sets itself.
_OF_RUN = ("force", "dry_run", "resume")

file_argument = click.argument("file", required=False, type=PATH, metavar="[CLUSTER.TOML]")


@contextlib.contextmanager
def opened(ctx: click.Context, file: Path | None) -> Iterator[Pipeline]:
    """The pipeline that a file describes; the block runs in the file's folder, its paths start there.

    Args:
        ctx: of the running command.
        file: ``--config``'s when None, else ``cluster.toml``.

    Raises:
        SettingError: there is no such file, or something in it is wrong; all problems are named at once.
    """
    problems: list[str] = []
    with _read(ctx, file, problems) as (path, sections):
        yield _Reader(ctx.find_root(), path, sections, problems).read()


@contextlib.contextmanager
def sections_of(ctx: click.Context, file: Path | None) -> Iterator[tuple[str, settings.Sections]]:
    """The file's path and its values by section, to be changed before ``from_sections``.

    Args, Raises:
        as ``opened``.
    """
    problems: list[str] = []
    with _read(ctx, file, problems) as found:
        if problems:
            raise SettingError("; ".join(problems), problems=problems)
        yield found


def from_sections(ctx: click.Context, path: str, sections: settings.Sections) -> Pipeline:
    """The pipeline that changed sections describe.

    Raises:
        SettingError: something in them is wrong; all problems are named at once.
    """
    problems: list[str] = []
    root = ctx.find_root()
    return _Reader(root, path, settings.checked(root, sections, "", problems), problems).read()


@contextlib.contextmanager
def _read(
    ctx: click.Context, file: Path | None, problems: list[str]
) -> Iterator[tuple[str, settings.Sections]]:
    root = ctx.find_root()
    path = Path(file or root.params.get("config") or DEFAULT)
    if not path.is_file():
        raise SettingError(
            f"there is no file {path}", fix="write one with `cluster-cli init DATA`, or name yours"
        )
    sections = settings.read_sections(root, str(path), problems)
    with contextlib.chdir(path.parent):
        yield str(path), sections


@dataclasses.dataclass
class _Reader:
    """Collects what is right in one place and what is wrong in another."""

    root: click.Context
    file: str
    sections: settings.Sections
    problems: list[str]
    model: str = ""

    def read(self) -> Pipeline:
        from stages.pipeline import Pipeline
        from stages.pipeline.chain import LINKS

        named = [stage for stage in settings.STAGES if stage in self.sections]
        if not named:
            self.problems.append(f"{self.file}: no section of a stage; begin with [score]")
        last = settings.STAGES.index(named[-1]) + 1 if named else 0
        folder = os.environ.get("CLUSTER_CLI_PATHS_FOLDER") or self._folder()
        arguments: dict[str, dict[str, Any]] = {}
        outputs: dict[str, Path] = {}
        for stage in settings.STAGES[:last]:
            given = dict(self.sections.get(stage, {}))
            given.setdefault("output", os.path.join(folder, LINKS[stage].name))
            if stage == "train" and self.model:
                given.setdefault("model", self.model)
            values = self._values(stage, given)
            if stage == "score":
                self.model = (values or given).get("model", "")
            if values is None:
                continue
            outputs[stage] = values.pop("output")
            arguments[stage] = self._arguments(stage, values)
        if self.problems:
            raise SettingError("; ".join(self.problems), problems=self.problems)
        return Pipeline(arguments, outputs)

    def _folder(self) -> str:
        return str(self.sections.get("paths", {}).get("folder", FOLDER))

    def _values(self, stage: str, given: dict[str, Any]) -> dict[str, Any] | None:
        """The stage's parameters by name, converted by its command's own options; None when wrong."""
        group = self.root.command
        assert isinstance(group, click.Group)
        command = group.get_command(self.root, stage)
        assert command is not None
        sources: dict[str, Any] = {
            "auto_envvar_prefix": f"{self.root.auto_envvar_prefix}_{stage.upper()}",
            "default_map": _listed(command, given),
        }
        before = len(self.problems)
        outside = foreign(stage, command)
        for name in outside:
            if name in given:
                self._wrong(f"{stage}.{name.replace('_', '-')} does not belong into a pipeline")
        inputs = [p for p in command.params if isinstance(p, click.Argument) and p.nargs != -1]
        named = [p for p in command.params if p.name in given]
        known_wrong = [p for p in named if settings.mistaken(p, given[str(p.name)])]
        for parameter in command.params:
            if parameter not in (*inputs, *known_wrong):
                self._try(parameter, click.Context(command, info_name=stage, **sources))
        if known_wrong or len(self.problems) > before:
            return None
        # Inputs come from the stage before; click only needs to see that there is one.
        params = command.make_context(stage, ["x" for _ in inputs], **sources).params
        known = {str(p.name) for p in inputs} | outside
        return {name: value for name, value in params.items() if name not in known}

    def _try(self, parameter: click.Parameter, ctx: click.Context) -> None:
        """Lets click look at one value by itself, because it stops at the first that is wrong."""
        name, place = str(parameter.name), f"{ctx.info_name}.{parameter.name}".replace("_", "-")
        try:
            parameter.handle_parse_result(ctx, {}, [])
        except click.MissingParameter:
            self._wrong(f"[{ctx.info_name}] needs {name.replace('_', '-')}")
        except click.BadParameter as error:
            if ctx.get_parameter_source(name) is click.core.ParameterSource.ENVIRONMENT:
                place += f" (from --set, or {ctx.auto_envvar_prefix}_{name.upper()})"
            self._wrong(f"{place}: {settings.plainly(error.message).rstrip('.')}")

    def _arguments(self, stage: str, values: dict[str, Any]) -> dict[str, Any]:
        """The keyword arguments of the stage's function, each stage's own checks made."""
        try:
            return _CONVERT[stage](values)
        except (ClusterCliError, click.BadParameter) as error:
            text = error.message if isinstance(error, click.BadParameter) else str(error)
            self._wrong(f"[{stage}] {text}")
        return values

    def _wrong(self, problem: str) -> None:
        self.problems.append(f"{self.file}: {problem}")


def foreign(stage: str, command: click.Command) -> set[str]:
    """The options of a command that mean nothing in a pipeline: they ask for something else."""
    from formats.data import DataOptions
    from stages.pipeline.chain import FUNCTIONS
    from stages.score.settings import ScoreSettings

    known = {*inspect.signature(FUNCTIONS[stage]).parameters}
    if stage == "score":  # its function takes these together
        kinds = (ScoreSettings, DataOptions)
        known |= {"shape", *(item.name for kind in kinds for item in dataclasses.fields(kind))}
    options = {str(p.name) for p in command.params if isinstance(p, click.Option)}
    return (options - known) | (options & {*_OF_RUN})


def _listed(command: click.Command, given: dict[str, Any]) -> dict[str, Any]:
    """One text where a list may stand is a list of one."""
    lists = {p.name for p in command.params if p.nargs == -1 or getattr(p, "multiple", False)}
    return {
        name: [value] if name in lists and isinstance(value, str) else value
        for name, value in given.items()
    }


def _score(values: dict[str, Any]) -> dict[str, Any]:
    from formats.data import DataOptions
    from stages.pipeline.chain import score_job
    from stages.score.settings import ScoreSettings

    values = {**values, "format": values["shape"], "fields": parse_fields(values["fields"])}
    values["chat_template"] = read_template(values["chat_template"])
    del values["shape"]
    if "-" in values["data"]:
        raise SettingError("data is '-', and a pipeline cannot read standard input twice")
    settings_names = {field.name for field in dataclasses.fields(ScoreSettings)}
    option_names = {field.name for field in dataclasses.fields(DataOptions)}
    arguments = {
        "settings": ScoreSettings(**{n: v for n, v in values.items() if n in settings_names}),
        "options": DataOptions(**{n: v for n, v in values.items() if n in option_names}),
        **{n: v for n, v in values.items() if n not in settings_names | option_names},
    }
    score_job(arguments)
    return arguments


def _cluster(values: dict[str, Any]) -> dict[str, Any]:
    from stages import cluster
    from stages.pipeline.chain import cluster_expected

    values = {**values, "memory": int(values["memory"] * 2**30)}
    cluster.expected("", 1, **cluster_expected(values))
    return values


def _select(values: dict[str, Any]) -> dict[str, Any]:
    from stages import select
    from stages.pipeline.chain import arguments_of

    select.expected("", **arguments_of(select.expected, values))
    return values


def _allocate(values: dict[str, Any]) -> dict[str, Any]:
    from stages import allocate
    from stages.pipeline.chain import arguments_of

    allocate.expected(["", ""], **arguments_of(allocate.expected, values))
    return values


def _train(values: dict[str, Any]) -> dict[str, Any]:
    from stages import train
    from stages.pipeline.chain import NO_MODEL

    train.expected("", NO_MODEL, **values)
    return values


_CONVERT = {
    "score": _score,
    "cluster": _cluster,
    "select": _select,
    "allocate": _allocate,
    "train": _train,
}
