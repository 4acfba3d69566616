"""Where everything came from: path, key, hash, versions and parameters of each artifact."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from formats.artifacts import Header
from stages.report import numbers
from stages.report.chain import CALLED, KINDS, Chain, Link, entries
from stages.report.document import Block, Card, Cards, Cell, Table, Text


def provenance(chain: Chain, beside: Sequence[tuple[str, Path, Header]] = ()) -> list[Block]:
    """A card for every artifact of the chain and for what was given beside it (what it is, where, its
    header), and a table of data and models.
    """
    blocks: list[Block] = []
    if chain.problem:
        blocks.append(Text(f"The chain ends early: {chain.problem}.", warning=True))
    for entry in chain.changed:
        text = (
            f"{entry['path']} has changed since it was used; figures from it may not be the run's."
        )
        blocks.append(Text(text, warning=True))
    cards = [Card(name, str(path), facts(header), code=True) for name, path, header in beside]
    for kind in KINDS:
        link = chain.get(kind)
        if link is not None:
            title = CALLED[kind].capitalize()
            cards.append(Card(title, str(link.path), _used(link), code=True))
    sources = [entry for entry in entries(chain.origin) if entry["kind"] in ("data", "model")]
    return [*blocks, Cards("Artifacts", cards, wide=True), read(sources)]


def _used(link: Link) -> list[tuple[str, str]]:
    """The facts, and by which hash the next artifact knew this one."""
    lines = facts(link.header)
    if link.sha256 is None:
        return lines
    if link.sha256 == link.header.key:
        return [("key", f"{link.header.key} ({link.state})"), *lines[1:]]
    return [("as used", f"{link.sha256} ({link.state})"), *lines]


def facts(header: Header) -> list[tuple[str, str]]:
    """What a header says about how the artifact was made."""
    versions = header.stats.get("versions", {})
    used = " ".join(f"{name} {version}" for name, version in versions.items())
    lines = [
        ("key", header.key),
        ("made by", f"{header.created_by}, format {header.format_version}"),
        ("versions", used),
        ("commit", str(header.stats.get("git_commit") or "")),
        ("parameters", _assignments(header.params)),
    ]
    return [(name, text) for name, text in lines if text]


def _assignments(params: dict[str, Any]) -> str:
    """``name=value`` of all that is set."""
    return "  ".join(
        f"{name}={value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)}"
        for name, value in params.items()
        if value not in (None, [], {}, "")
    )


def read(sources: Iterable[dict[str, Any]]) -> Table:
    """Data files and models, each content once."""
    rows: dict[tuple[str, str], list[Cell]] = {}
    for entry in sources:
        count = numbers.NONE if entry.get("rows") is None else numbers.count(entry["rows"])
        line: list[Cell] = [entry["path"], entry["kind"], entry["sha256"] or ""]
        rows.setdefault(
            (entry["kind"], entry["sha256"] or entry["path"]), [*line, entry["state"], count]
        )
    head = ("path", "what", "SHA-256", "now", "rows")
    return Table("Data and models", head, list(rows.values()), 4)
