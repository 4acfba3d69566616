"""Comparing whole artifacts, file by file."""

from __future__ import annotations

import json
from pathlib import Path


def files(folder: Path) -> dict[str, bytes]:
    """Every file's bytes by its place inside the folder; the time it took is left out."""
    found = {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }
    for place in [name for name in found if Path(name).name == "zarr.json"]:
        root = json.loads(found[place])
        root.get("attributes", {}).get("stats", {}).pop("seconds", None)
        found[place] = json.dumps(root).encode()
    return found
