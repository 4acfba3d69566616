"""Where settings come from besides flags: ``--set``, the environment, the ``--config`` file.

Click looks up a flag, then the environment, then ``default_map``. ``--set`` stands above the
environment, so it is handed to click as the environment variable it outranks.
"""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import click

from formats.errors import SettingError

# The commands that have a section in the file; what else is known there belongs to no single command.
STAGES = ("score", "cluster", "select", "allocate", "train")
PATHS = {"folder": click.Option(["--folder"], type=click.STRING)}

Sections = dict[str, dict[str, Any]]


def apply(ctx: click.Context, config: str | None, assignments: Sequence[str]) -> None:
    """Makes the file's and ``--set``'s values the defaults of the commands' options.

    Raises:
        SettingError: the file is no TOML, or keys are unknown, in the environment too; all problems are
            named at once.
    """
    problems: list[str] = []
    ctx.call_on_close(_forget(f"{ctx.auto_envvar_prefix}_"))
    defaults = read_sections(ctx, config, problems) if config else {}
    _check_environment(ctx, problems)
    for assignment in assignments:
        _assign(ctx, assignment, problems)
    if problems:
        raise SettingError("; ".join(problems), problems=problems)
    ctx.default_map = defaults


def read_sections(ctx: click.Context, config: str, problems: list[str]) -> Sections:
    """The file's values by section and parameter name; what is wrong with it joins ``problems``.

    Raises:
        SettingError: the file cannot be read, or is no TOML.
    """
    return checked(ctx, _read(config), f"{config}: ", problems)


def checked(ctx: click.Context, raw: dict[str, Any], where: str, problems: list[str]) -> Sections:
    """Values by section and parameter name; what is wrong with them joins ``problems``.

    Args:
        raw: by section, the values as they are spelled in the file.
        where: in front of every problem.
    """
    found: Sections = {}
    for section, values in raw.items():
        if not isinstance(values, dict):
            problems.append(f"{where}{section!r} stands outside a section")
            continue
        found[section] = {}
        if not _known(ctx, section, where, problems):
            continue
        for key, value in values.items():
            parameter = _parameter(ctx, section, key, where, problems)
            if parameter is None:
                continue
            if kind := mistaken(parameter, value):
                problems.append(f"{where}{section}.{key} is {value!r}, not {kind}")
            found[section][str(parameter.name)] = value
    return found


def _forget(prefix: str) -> Callable[[], None]:
    """Takes ``--set`` back when the command has ended, for callers that go on living."""
    before = {name: value for name, value in os.environ.items() if name.startswith(prefix)}

    def forget() -> None:
        for name in [name for name in os.environ if name.startswith(prefix)]:
            del os.environ[name]
        os.environ.update(before)

    return forget


def nearest(word: str, known: Iterable[str]) -> str:
    """`` (did you mean 'x'?)`` when something known is close to the word, else nothing."""
    close = difflib.get_close_matches(word, list(known), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def _read(config: str) -> dict[str, Any]:
    try:
        with open(config, "rb") as file:
            return tomllib.load(file)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SettingError(f"{config} is not valid TOML: {error}") from error
    except OSError as error:
        raise SettingError(f"cannot read {config}: {error.strerror}") from error


def _check_environment(ctx: click.Context, problems: list[str]) -> None:
    """A misspelled variable must not be as good as none."""
    for section in (*STAGES, "paths"):
        start = f"{ctx.auto_envvar_prefix}_{section}_".upper()
        for name in sorted(name for name in os.environ if name.startswith(start)):
            known = {start + str(p.name).upper() for p in _parameters(ctx, section).values()}
            if name not in known:
                hint = nearest(name, known)
                problems.append(
                    f"the environment sets {name}, and {section} has no such setting{hint}"
                )


def plainly(text: str) -> str:
    """Click's message in the words of a person."""
    for kind, words in (("integer", "a whole number"), ("float", "a number")):
        text = re.sub(rf"is not a valid {kind}( range)?\b", f"is not {words}", text)
    return text


def _assign(ctx: click.Context, assignment: str, problems: list[str]) -> None:
    target, equals, value = assignment.partition("=")
    section, dot, key = target.partition(".")
    if not equals or not dot:
        problems.append(f"--set {assignment!r} is not of the form section.key=value")
        return
    parameter = _parameter(ctx, section, key, "--set ", problems)
    if isinstance(parameter, click.Argument):
        problems.append(f"--set cannot give {key}: name it on the command line or in the file")
    elif parameter:
        os.environ[f"{ctx.auto_envvar_prefix}_{section}_{parameter.name}".upper()] = value


def _parameter(
    ctx: click.Context, section: str, key: str, where: str, problems: list[str]
) -> click.Parameter | None:
    known = _known(ctx, section, where, problems)
    if not known:
        return None
    key = key.replace("_", "-")
    by_name = {str(p.name).replace("_", "-"): p for p in known.values()}
    parameter = known.get(key) or by_name.get(key)
    if parameter is None:
        problems.append(f"{where}{section} has no setting {key!r}{nearest(key, known)}")
    return parameter


def _known(
    ctx: click.Context, section: str, where: str, problems: list[str]
) -> dict[str, click.Parameter]:
    """What can be set in a section, by its spelling there; nothing when there is no such section."""
    known = _parameters(ctx, section)
    if not known:
        sections = (*STAGES, "paths")
        problems.append(f"{where}there is no section {section!r}{nearest(section, sections)}")
    return known


def _parameters(ctx: click.Context, section: str) -> dict[str, click.Parameter]:
    if section == "paths":
        return dict(PATHS)
    group = ctx.command
    assert isinstance(group, click.Group)
    command = group.get_command(ctx, section) if section in STAGES else None
    if command is None:
        return {}
    known: dict[str, click.Parameter] = {}
    for parameter in command.params:
        if isinstance(parameter, click.Argument) and parameter.nargs == -1:
            known[str(parameter.name)] = parameter  # the data files of score
        known |= {flag[2:]: parameter for flag in parameter.opts if flag[:2] == "--"}
    return known


def mistaken(parameter: click.Parameter, value: Any) -> str:
    """What the value should have been; click would take 3.7 for 3 and true for 1. Empty when right."""
    several = parameter.nargs == -1 or getattr(parameter, "multiple", False)
    values = value if several and isinstance(value, list) else [value]
    # A type of a command's own, such as `a number or auto`, judges for itself.
    kind, allowed = _KINDS.get(parameter.type.name, ("a number or a text", (int, float, str)))
    if all(type(item) in allowed for item in values):
        return ""
    return f"a list, each {kind}" if several else kind


_KINDS: dict[str, tuple[str, tuple[type, ...]]] = {
    "boolean": ("true or false", (bool,)),
    "integer": ("a whole number", (int,)),
    "integer range": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "float range": ("a number", (int, float)),
    **dict.fromkeys(("text", "choice", "path", "file", "directory"), ("a text", (str,))),
}
