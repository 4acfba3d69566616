"""A headless Chromium, driven over its debugging pipe: no driver and no package is needed."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
    *("--disable-extensions", "--disable-background-networking", "--disable-component-update"),
    *("--disable-dev-shm-usage", "--remote-debugging-pipe"),
)


def installed() -> str | None:
    """The browser's path, None where there is none."""
    return next((path for name in NAMES if (path := shutil.which(name))), None)


class Page:
    """One tab. Commands are those of the Chrome DevTools protocol."""

    def __init__(self, read: int, write: int) -> None:
        self._in, self._out = os.fdopen(read, "rb"), os.fdopen(write, "wb")
        self._number = 0
        self._session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """Sends a command and waits for its result; events met on the way are kept."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": params}
        if self._session:
            message["sessionId"] = self._session
        self._out.write(json.dumps(message).encode() + b"\0")
        self._out.flush()
        while True:
            got = self._receive()
            if got.get("id") == self._number:
                assert "error" not in got, got
                return got["result"]

    def _receive(self) -> dict[str, Any]:
        data = bytearray()
        while (byte := self._in.read(1)) != b"\0":
            assert byte, "the browser has gone"
            data += byte
        got: dict[str, Any] = json.loads(data)
        if "method" in got:
            self.events.append(got)
        return got

    def open(self, path: Path, width: int, height: int = 900) -> None:
        """Shows a file in a window of this size and waits until it is loaded."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        self.events.clear()
        self.call("Page.navigate", url=path.absolute().as_uri())
        while not any(event["method"] == "Page.loadEventFired" for event in self.events):
            self._receive()

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression."""
        found = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def screenshot(self, whole: bool = False) -> bytes:
        """A PNG of the window, or of the whole page."""
        more: dict[str, Any] = {}
        if whole:
            size = self.call("Page.getLayoutMetrics")["cssContentSize"]
            more = {"captureBeyondViewport": True, "clip": {**size, "scale": 1}}
        taken = self.call("Page.captureScreenshot", format="png", **more)
        return base64.b64decode(taken["data"])

    def pdf(self) -> bytes:
        """The page as it is printed."""
        made = self.call("Page.printToPDF", preferCSSPageSize=True, printBackground=True)
        return base64.b64decode(made["data"])

    @property
    def complaints(self) -> list[str]:
        """What the browser wrote into its console since the page was opened, and what it fetched."""
        kinds = ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
        found = [json.dumps(e["params"]) for e in self.events if e["method"] in kinds]
        sent = [
            e["params"]["request"]["url"] for e in self.events if "requestWillBeSent" in e["method"]
        ]
        return found + [url for url in sent if not url.startswith("file:")]


@contextlib.contextmanager
def chromium(profile: Path) -> Iterator[Page]:
    """A browser with one tab, ended with the block."""
    path = installed()
    assert path
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # The browser reads commands from descriptor 3 and writes answers to 4.
    line = f'exec "$0" "$@" 3<&{theirs_in} 4>&{theirs_out}'
    process = subprocess.Popen(
        ["bash", "-c", line, path, *_FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(theirs_in, theirs_out),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    try:
        page = Page(ours_in, ours_out)
        yield page
        with contextlib.suppress(AssertionError, OSError):
            page._session = None
            page.call("Browser.close")
    finally:
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
