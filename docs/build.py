"""Writes the reference pages from the code, so that they cannot drift: ``python docs/build.py [--check]``.

* ``docs/cli.md``: every command's ``--help``.
* ``docs/artifacts.md``: the docstrings of the modules in ``formats`` that define each artifact.
* the results in ``README.md``: from the measurements in ``docs/results``.
"""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

import results  # noqa: E402

from cluster_cli.main import cli  # noqa: E402

MADE = "<!-- written by docs/build.py; change the code instead -->\n\n"

ARTIFACTS = ("signatures", "clusters", "selection", "allocation", "runs")


def command_pages() -> str:
    """The help text of the group and of each command."""
    parent = click.Context(cli, info_name="cluster-cli", terminal_width=96, max_content_width=96)
    parts = [MADE, "# Command line\n\n", f"```text\n{cli.get_help(parent)}\n```\n"]
    for name in cli.list_commands(parent):
        command = cli.get_command(parent, name)
        assert command is not None
        context = click.Context(
            command, parent=parent, info_name=name, terminal_width=96, max_content_width=96
        )
        parts.append(f"\n## cluster-cli {name}\n\n```text\n{command.get_help(context)}\n```\n")
    return "".join(parts)


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
        parts.append(f"## {title}\n\n{text.strip().replace('``', '`')}\n\n")
    return "".join(parts).rstrip() + "\n"


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
