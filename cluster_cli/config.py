"""``cluster-cli config show``: every setting of a pipeline file as it is understood, and who said so."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from cluster_cli import pipeline, printing
from cluster_cli.settings import Sections

SET, ENVIRONMENT, FILE, DEFAULT = "--set", "environment", "file", "default"
_SOURCES = {
    click.core.ParameterSource.ENVIRONMENT: ENVIRONMENT,
    click.core.ParameterSource.DEFAULT_MAP: FILE,
}


@dataclass(frozen=True)
class Setting:
    """One setting of one section.

    Attributes:
        section, key: as they are spelled in the file.
        value, default: JSON-able; None for what is not set, or has no default.
        source: ``--set``, environment, file, default, or the other setting whose value it takes.
    """

    section: str
    key: str
    value: Any
    default: Any
    source: str


@click.group("config", no_args_is_help=False)
def command() -> None:
    """Look at the settings of a pipeline file.

    \b
    cluster-cli config show
    """


@command.command("show")
@pipeline.file_argument
@click.option("--changed", is_flag=True, help="Only what differs from the default.")
@click.option("--json", "as_json", is_flag=True, help="Print the settings as JSON on stdout.")
@click.pass_context
def show(ctx: click.Context, file: Path | None, changed: bool, as_json: bool) -> None:
    """Print every setting that `run` would use, and whether --set, the environment or the file said so.

    What takes its value from another setting names that one instead.

    \b
    cluster-cli config show
    cluster-cli --set score.rank=32 config show mine.toml --changed
    cluster-cli config show --json | jq .score.rank
    """
    with pipeline.opened(ctx, file) as chain:  # names everything that is wrong with the file
        stages = chain.stages
    with pipeline.sections_of(ctx, file) as (_, sections):
        found = list(_settings(ctx.find_root(), stages, sections))
    if changed:
        found = [each for each in found if each.value != each.default]
    if as_json:
        printing.as_json(_nested(found))
    else:
        printing.rows([(f"{s.section}.{s.key}", _shown(s.value), s.source) for s in found])


def _settings(root: click.Context, stages: list[str], sections: Sections) -> Iterator[Setting]:
    folder = _folder(root, sections)
    yield folder
    model: Setting | None = None
    for stage in stages:
        for setting in _of_stage(root, stage, sections.get(stage, {})):
            if setting.key == "output" and setting.source == DEFAULT:
                place = os.path.join(folder.value, _file_name(stage))
                setting = Setting(stage, "output", place, place, "paths.folder")
            if setting.key == "model" and model and setting.source == DEFAULT:
                setting = Setting(stage, "model", model.value, model.value, "score.model")
            if setting.key == "model":
                model = setting
            yield setting


def _folder(root: click.Context, sections: Sections) -> Setting:
    given = sections.get("paths", {}).get("folder")
    source = FILE if given is not None else DEFAULT
    if outside := os.environ.get("CLUSTER_CLI_PATHS_FOLDER"):
        given, source = outside, ENVIRONMENT
    if "paths.folder" in _assigned(root):
        source = SET
    value = pipeline.FOLDER if given is None else given
    return Setting("paths", "folder", value, pipeline.FOLDER, source)


def _file_name(stage: str) -> str:
    from stages.pipeline.chain import LINKS

    return LINKS[stage].name


def _of_stage(root: click.Context, stage: str, given: dict[str, Any]) -> Iterator[Setting]:
    """The settings of one stage, each value converted by the command's own option."""
    assert isinstance(root.command, click.Group)
    command = root.command.get_command(root, stage)
    assert command is not None
    outside, assigned = pipeline.foreign(stage, command), _assigned(root)
    plain = command.make_context(stage, [], resilient_parsing=True)
    context = command.make_context(
        stage,
        [],
        resilient_parsing=True,
        auto_envvar_prefix=f"{root.auto_envvar_prefix}_{stage.upper()}",
        default_map=pipeline._listed(command, given),
    )
    for parameter in command.params:
        name, key = str(parameter.name), max(parameter.opts, key=len).lstrip("-")
        if name in outside or (isinstance(parameter, click.Argument) and parameter.nargs != -1):
            continue
        source = _SOURCES.get(context.get_parameter_source(name), DEFAULT)  # type: ignore[arg-type]
        if {f"{stage}.{name}", f"{stage}.{key}".replace("-", "_")} & assigned:
            source = SET
        default = _plain(plain.params.get(name))
        yield Setting(stage, key, _plain(context.params.get(name)), default, source)


def _assigned(root: click.Context) -> set[str]:
    """What ``--set`` names, spelled with underscores."""
    given = root.params.get("assignments") or ()
    return {assignment.partition("=")[0].replace("-", "_") for assignment in given}


def _plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, (tuple, list)):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Path) else value


def _shown(value: Any) -> str:
    """As one would write it into the file."""
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def _nested(found: list[Setting]) -> dict[str, dict[str, Any]]:
    sections: dict[str, dict[str, Any]] = {}
    for each in found:
        entry = {"value": each.value, "default": each.default, "source": each.source}
        sections.setdefault(each.section, {})[each.key] = entry
    return sections
