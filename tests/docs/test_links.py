"""Every page: links and anchors lead somewhere, and commands are ones that exist."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from xml.etree import ElementTree

import click
import pytest

from cluster_cli.main import COMMANDS, cli
from tests.docs.commands import check, commands, fenced

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    str(path.relative_to(ROOT))
    for path in (
        *(ROOT / "README.md", ROOT / "CONTRIBUTING.md"),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "examples").rglob("*.md"),
    )
)
GENERATED = "docs/cli.md"  # its commands are those of the help texts, see below
_LINK = re.compile(r"(!?)\[((?:[^\]\[]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
_CODE = re.compile(r"^ *(`{3,}).*?^ *\1 *$|(`+)[^`]*?\2", re.MULTILINE | re.DOTALL)


@cache
def text(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")


@cache
def anchors(page: str) -> set[str]:
    """As GitHub makes them of headings: lower case, spaces to hyphens, other signs dropped."""
    found: set[str] = set()
    without_code = re.sub(r"^ *(`{3,}).*?^ *\1 *$", "", text(page), flags=re.M | re.S)
    for heading in re.findall(r"^#+ +(.+?) *$", without_code, re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
        number = 0
        while (name := f"{slug}-{number}" if number else slug) in found:
            number += 1
        found.add(name)
    return found


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page: str) -> None:
    folder = (ROOT / page).parent
    for _, _, target in _LINK.findall(_CODE.sub("", text(page))):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        place = (folder / path).resolve() if path else ROOT / page
        assert place.exists(), target
        assert place.is_relative_to(ROOT), target
        if anchor:
            assert anchor in anchors(str(place.relative_to(ROOT))), target


@pytest.mark.parametrize("page", [page for page in PAGES if page != GENERATED])
def test_commands_are_valid(page: str) -> None:
    for language, block in fenced(text(page)):
        if language in ("python", "toml", "yaml", "json"):
            continue
        for words in commands(block):
            try:
                check(words)
            except click.ClickException as error:
                pytest.fail(f"cluster-cli {' '.join(words)}: {error.format_message()}")


@pytest.mark.parametrize("name", [*COMMANDS, "config show"])
def test_examples_of_help_texts_are_valid(name: str) -> None:
    command: click.Command | None = cli
    for part in name.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), part)
    assert command is not None
    for words in commands(re.sub(r"^[a-z]+:\s+", "", command.help or "", flags=re.MULTILINE)):
        if words:
            check(words)


def test_every_page_is_reached_from_the_index() -> None:
    seen, waiting = set(), ["docs/index.md"]
    while waiting:
        page = waiting.pop()
        if page in seen:
            continue
        seen.add(page)
        for _, _, target in _LINK.findall(_CODE.sub("", text(page))):
            place = ((ROOT / page).parent / target.partition("#")[0]).resolve()
            if place.suffix == ".md" and place.is_relative_to(ROOT) and place.exists():
                waiting.append(str(place.relative_to(ROOT)))
    assert {page for page in PAGES if page.startswith("docs/")} <= seen


@pytest.mark.parametrize(
    "picture", sorted(path.name for path in (ROOT / "docs" / "pictures").glob("*.svg"))
)
def test_pictures_are_sound_and_fit_light_and_dark(picture: str) -> None:
    path = ROOT / "docs" / "pictures" / picture
    root = ElementTree.parse(path).getroot()
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert root.get("viewBox")
    assert root.find("{http://www.w3.org/2000/svg}title") is not None
    assert "prefers-color-scheme: dark" in path.read_text(encoding="utf-8")


def test_paths_in_contributing_exist() -> None:
    """A path in code style with a slash or an ending is a file or folder of the project."""
    page = text("CONTRIBUTING.md")
    named = re.findall(r"`([\w./-]+(?:/|\.(?:py|md|toml|json|txt|svg)))`", page)
    assert len(named) > 40
    for name in named:
        if "/" in name.rstrip("/"):
            assert (ROOT / name).exists(), name
