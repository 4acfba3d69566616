"""Where settings come from besides flags: ``--set``, the environment, the ``--config`` file.

Click looks up a flag, then the environment, then ``default_map``. ``--set`` stands above the
environment, so it is handed to click as the environment variable it outranks.
"""

from __future__ import annotations

import difflib
import os
import tomllib
from collections.abc import Iterable, Sequence
from typing import Any

import click

from formats.errors import SettingError


def apply(ctx: click.Context, config: str | None, assignments: Sequence[str]) -> None:
    """Makes the file's and ``--set``'s values the defaults of the commands' options.

    Raises:
        SettingError: the file is no TOML, or keys are unknown; all problems are named at once.
    """
    problems: list[str] = []
    sections = _read(config) if config else {}
    defaults: dict[str, dict[str, Any]] = {}
    for section, values in sections.items():
        if not isinstance(values, dict):
            problems.append(f"{config}: {section!r} stands outside a section")
            continue
        defaults[section] = {}
        for key, value in values.items():
            name = _parameter(ctx, section, key, f"{config}: ", problems)
            if name:
                defaults[section][name] = value
    for assignment in assignments:
        _assign(ctx, assignment, problems)
    if problems:
        raise SettingError("; ".join(problems), problems=problems)
    ctx.default_map = defaults


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


def _assign(ctx: click.Context, assignment: str, problems: list[str]) -> None:
    target, equals, value = assignment.partition("=")
    section, dot, key = target.partition(".")
    if not equals or not dot:
        problems.append(f"--set {assignment!r} is not of the form section.key=value")
        return
    name = _parameter(ctx, section, key, "--set ", problems)
    if name:
        os.environ[f"{ctx.auto_envvar_prefix}_{section}_{name}".upper()] = value


def _parameter(
    ctx: click.Context, section: str, key: str, where: str, problems: list[str]
) -> str | None:
    group = ctx.command
    assert isinstance(group, click.Group)
    commands = group.list_commands(ctx)
    command = group.get_command(ctx, section) if section in commands else None
    if command is None:
        problems.append(f"{where}there is no section {section!r}{nearest(section, commands)}")
        return None
    names = {p.name for p in command.params if p.name and isinstance(p, click.Option)}
    spelled = {
        flag.lstrip("-"): p.name for p in command.params for flag in p.opts if flag[:2] == "--"
    }
    key = key.replace("_", "-")
    name = spelled.get(key) or (key.replace("-", "_") if key.replace("-", "_") in names else None)
    if name is None:
        problems.append(f"{where}{section} has no setting {key!r}{nearest(key, spelled)}")
    return name
