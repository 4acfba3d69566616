"""Writes the reference pages from the code, so that they cannot drift: ``python docs/build.py [--check]``.

* ``docs/cli.md``: every command's ``--help``.
* ``docs/changed_stages.md``: which stages a changed setting does again, from the stages' own keys.
* ``docs/artifacts.md``: the docstrings of the modules in ``formats`` that define each artifact.
* ``docs/measurements.md`` and the results in ``README.md``: from the measurements in ``docs/results``.
"""

from __future__ import annotations

import importlib
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import changes  # noqa: E402
import comparisons  # noqa: E402
import measurements  # noqa: E402
import results  # noqa: E402

from cluster_cli.main import cli  # noqa: E402
from formats import runs  # noqa: E402
from formats.artifacts import Header  # noqa: E402
from formats.evaluation import COLUMNS  # noqa: E402
from formats.rendering import STATUS_NAMES  # noqa: E402

MADE = "<!-- written by docs/build.py; change the code instead -->\n\n"

# What a header is written with besides the attributes of ``Header``.
HEADER = {
    "format": "`cluster-cli/` and the kind",
    "format_version": "raised when readers of the old one would be mistaken",
    "complete": "true; there is no other",
    "created_by": "program and version",
}
ARTIFACTS = (
    *("signatures", "clusters", "selection", "allocation", "runs"),
    *("evaluation", "comparison"),
)


def command_pages() -> str:
    """The help text of the group and of each command."""
    parent = click.Context(cli, info_name="cluster-cli", terminal_width=96, max_content_width=96)
    parts = [MADE, "# Command line\n\n", f"```text\n{cli.get_help(parent)}\n```\n"]
    parts += _commands(parent, cli, "cluster-cli")
    return "".join(parts)


def _commands(parent: click.Context, group: click.Group, path: str) -> Iterator[str]:
    """A section per command, and per command inside a command."""
    for name in group.list_commands(parent):
        command = group.get_command(parent, name)
        assert command is not None
        context = click.Context(
            command, parent=parent, info_name=name, terminal_width=96, max_content_width=96
        )
        yield f"\n## {path} {name}\n\n```text\n{command.get_help(context)}\n```\n"
        if isinstance(command, click.Group):
            yield from _commands(context, command, f"{path} {name}")


def changed_stages() -> str:
    """Which stages a changed setting does again."""
    return MADE + changes.page()


def artifact_pages() -> str:
    """The common header and each artifact's schema."""
    parts = [
        MADE,
        "# Artifacts\n\n",
        "Everything a stage writes can be read with `zarr` and `json` alone.\n\n",
    ]
    for name in ("artifacts", *ARTIFACTS):
        text = importlib.import_module(f"formats.{name}").__doc__ or ""
        title = "Common to all" if name == "artifacts" else name.capitalize()
        parts.append(f"## {title}\n\n{_plain(text)}\n\n")
        parts += [_fields(title, fields) for title, fields in _tables(name)]
    return "".join(parts).rstrip() + "\n"


def _tables(name: str) -> list[tuple[str, dict[str, str]]]:
    """The lists of fields that belong to a page, each with a line above it."""
    if name == "artifacts":
        fields = HEADER | _attributes(Header)
        return [("The header", {n: fields[n] for n in fields if n not in ("kind", "extra")})]
    if name == "signatures":
        numbers = {str(number): status for number, status in enumerate(STATUS_NAMES)}
        return [("`STATUS_NAMES`", numbers)]
    found = {"runs": ("`metrics.jsonl`", runs.FIELDS), "evaluation": ("`examples`", COLUMNS)}
    return [found[name]] if name in found else []


def _attributes(kind: type) -> dict[str, str]:
    """What a docstring says under ``Attributes``, by name."""
    text = inspect.getdoc(kind) or ""
    lines = text.partition("Attributes:\n")[2].splitlines()
    return {name.strip(): about for name, _, about in (line.partition(": ") for line in lines)}


def _fields(title: str, fields: dict[str, str]) -> str:
    rows = [f"| `{name}` | {_plain(about.rstrip('.'))} |" for name, about in fields.items()]
    return "\n".join([f"{title}:\n", "| name | meaning |", "| --- | --- |", *rows]) + "\n\n"


def _plain(text: str) -> str:
    return text.strip().replace("``", "`")


def readme() -> str:
    """The README with its section of results written anew from ``docs/results/*.json``."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    begin, end = "<!-- results -->\n", "<!-- /results -->"
    before, _, rest = text.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n{results.section()}\n{end}{after}"


PAGES = {
    "docs/cli.md": command_pages,
    "docs/artifacts.md": artifact_pages,
    "docs/changed_stages.md": changed_stages,
    "docs/measurements.md": lambda: f"{MADE}{measurements.page()}\n{comparisons.section()}",
    "README.md": readme,
}


def main() -> int:
    """Writes the pages; with ``--check`` only says which are out of date."""
    stale = []
    for name, make in PAGES.items():
        path, text = ROOT / name, make()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(name)
            if "--check" not in sys.argv:
                path.write_text(text, encoding="utf-8")
    if stale and "--check" in sys.argv:
        print(f"out of date: {', '.join(stale)}; run `make docs`", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
