"""A folder on a real local web server: as plain files, and as a dataset of a Hugging Face hub."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote

REPO = "me/maps"
_API = f"/api/datasets/{REPO}"
_FILES = f"/datasets/{REPO}/resolve/main/"


class _Handler(SimpleHTTPRequestHandler):
    """Plain files under their names; the hub's own addresses as huggingface_hub asks for them."""

    def do_GET(self) -> None:
        if self.path.startswith(f"{_API}/tree/main"):
            name, _, query = self.path.removeprefix(f"{_API}/tree/main").partition("?")
            self._tree(unquote(name).strip("/"), "recursive=true" in query.lower())
        elif self.path.startswith(_API):
            self._json({"id": REPO, "sha": "0" * 40, "siblings": []})
        elif self.path.startswith(_FILES):
            self._part(Path(self.directory, unquote(self.path).removeprefix(_FILES)))
        elif self.path.startswith("/broken/"):
            self.send_error(500, "out of order")
        else:
            super().do_GET()

    def do_POST(self) -> None:
        form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
        paths = [Path(self.directory, name) for name in form["paths"]]
        self._json([self._entry(path) for path in paths if path.exists()])

    def _tree(self, name: str, whole: bool) -> None:
        folder = Path(self.directory, name)
        if not folder.is_dir():
            self._json({"error": "no such entry"}, 404, "EntryNotFound")
            return
        self._json([self._entry(path) for path in sorted(folder.glob("**/*" if whole else "*"))])

    def _entry(self, path: Path) -> dict[str, Any]:
        name = str(path.relative_to(self.directory))
        if path.is_dir():
            return {"type": "directory", "path": name, "oid": "0"}
        return {"type": "file", "path": name, "oid": "0", "size": path.stat().st_size}

    def _part(self, file: Path) -> None:
        content = file.read_bytes()
        asked = self.headers.get("Range", "").removeprefix("bytes=")
        if asked:
            start, _, last = asked.partition("-")
            content = content[int(start) : int(last) + 1 if last else None]
        self._answer(content, 206 if asked else 200, {})

    def _json(self, value: Any, status: int = 200, error: str = "") -> None:
        self._answer(json.dumps(value).encode(), status, {"X-Error-Code": error} if error else {})

    def _answer(self, content: bytes, status: int, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, text in {**headers, "Content-Length": str(len(content))}.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        """Silent."""


@contextlib.contextmanager
def served(folder: Path) -> Iterator[str]:
    """The server's address, ``http://127.0.0.1:PORT``, while the block runs."""
    handler = partial(_Handler, directory=str(folder))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
