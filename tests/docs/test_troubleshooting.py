"""Every message on the page of troubles is one that the code can say."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MESSAGES = re.findall(r"\*\*`([^`]+)`\*\*", PAGE)


def texts() -> list[str]:
    """Every text in the code, its variable parts as one sign that no message holds."""
    found = []
    for package in ("cluster_cli", "formats", "stages"):
        for path in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    found.append(node.value)
                elif isinstance(node, ast.JoinedStr):
                    found.append("".join(map(_part, node.values)))
    return found


def _part(node: ast.expr) -> str:
    return str(node.value) if isinstance(node, ast.Constant) else "\0"


TEXTS = texts()


def test_there_are_many() -> None:
    assert len(MESSAGES) == len(set(MESSAGES)) > 40


@pytest.mark.parametrize("message", MESSAGES)
def test_the_code_can_say_it(message: str) -> None:
    parts = [part.strip(" ") for part in message.split("...")]
    assert any(_in_order(parts, text) for text in TEXTS if len(text) < 400)  # no docstrings


def _in_order(parts: list[str], text: str) -> bool:
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True
