"""Finds the ``cluster-cli`` commands in documents and scripts, and asks click whether they are valid."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from functools import cache

import click

from cluster_cli.main import cli

_FENCE = re.compile(r"^ *(`{3,})(\S*).*?\n(.*?)^ *\1 *$", re.MULTILINE | re.DOTALL)
_SUBSTITUTION = re.compile(r"\$\(((?:[^()]|\([^()]*\))*)\)")
_NAME = "cluster-cli"


def fenced(markdown: str) -> Iterator[tuple[str, str]]:
    """Language and text of every fenced block."""
    for match in _FENCE.finditer(markdown):
        yield match[2], match[3]


def commands(text: str) -> list[list[str]]:
    """The words after every ``cluster-cli`` that is called in shell text, lines joined at backslashes."""
    found: list[list[str]] = []
    for line in re.sub(r"\\\n\s*", " ", text).splitlines():
        if _NAME not in line and "-m cluster_cli" not in line:
            continue
        found += [words for inner in _SUBSTITUTION.findall(line) for words in commands(inner)]
        found += _called(_SUBSTITUTION.sub("x", line))
    return found


def _called(line: str) -> Iterator[list[str]]:
    for segment in _segments(re.sub(r"^\s*(\$|>>>|-) ", "", line)):
        if segment[:1] in (["git"], ["cd"]):  # a folder of that name
            continue
        for number, word in enumerate(segment):
            module = word == "cluster_cli" and segment[number - 1 : number] == ["-m"]
            if word == _NAME or module:
                yield segment[number + 1 :]
                break


def _segments(line: str) -> Iterator[list[str]]:
    """A line split at ``|``, ``&&``, ``;``, redirections and so on; comments taken away."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    segment: list[str] = []
    for token in lexer:
        if set(token) <= set("();<>|&"):
            yield segment
            segment = []
        else:
            segment.append(token)
    yield segment


def check(words: list[str]) -> None:
    """Lets click parse a command as typed; ``...`` stands for whatever else is needed.

    Raises:
        click.UsageError: there is no such command or option, something is missing, or a value is wrong.
    """
    elided = "..." in words or "--config" in words  # the file may say what is missing
    words = [word for word in words if word != "..."]
    options, arguments = _options(cli, words)
    for name in options:
        if name not in _known(cli):
            raise click.NoSuchOption(name)
    group: click.Group = cli
    path: list[str] = []
    while True:
        if not arguments:
            if "--version" in words or "--help" in words or elided:
                return
            raise click.UsageError(f"no command in {' '.join(words)!r}")
        name, arguments = arguments[0], arguments[1:]
        command = group.get_command(click.Context(group), name)
        if command is None:
            raise click.UsageError(f"no command {name!r}")
        path.append(name)
        if not isinstance(command, click.Group):
            break
        group = command
    if "--help" in arguments or "-h" in arguments:
        return
    try:
        command.make_context(" ".join(path), list(arguments))
    except click.MissingParameter:
        if not elided:
            raise


def _options(group: click.Group, words: list[str]) -> tuple[list[str], list[str]]:
    """The group's own options, and what follows them."""
    taken: list[str] = []
    while words and words[0].startswith("-"):
        name, words = words[0], words[1:]
        taken.append(name)
        option = _known(group).get(name)
        if option is not None and not option.is_flag and option.name != "version":
            words = words[1:]
    return taken, words


@cache
def _known(group: click.Group) -> dict[str, click.Option]:
    options = [o for o in group.get_params(click.Context(group)) if isinstance(o, click.Option)]
    return {name: option for option in options for name in option.opts}
