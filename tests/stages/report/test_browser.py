"""The page in a browser: nothing to complain about, nothing sideways, and tables that sort."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from stages.report import report
from tests.stages.report import browser, material

pytestmark = pytest.mark.skipif(
    browser.installed() is None, reason=f"no browser is installed ({', '.join(browser.NAMES)})"
)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Iterator[browser.Page]:
    with browser.chromium(tmp_path_factory.mktemp("profile")) as opened:
        yield opened


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = material.comparison(tmp_path_factory.mktemp("comparison"))
    report(folder, folder / "report.html")
    return folder / "report.html"


def colours(png: bytes) -> int:
    """How many different bytes the picture's pixels have: a blank page has very few."""
    data, place = b"", 8
    while place < len(png):
        (length,) = struct.unpack(">I", png[place : place + 4])
        if png[place + 4 : place + 8] == b"IDAT":
            data += png[place + 8 : place + 8 + length]
        place += 12 + length
    return len(set(zlib.decompress(data)))


def test_it_fits_a_phone_and_a_desk(page: browser.Page, made: Path) -> None:
    for width in (390, 1280):
        page.open(made, width)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate("document.querySelector('svg').getBoundingClientRect().width") > 300
        assert colours(page.screenshot()) > 100
        assert page.complaints == []


def test_tables_sort_on_a_click_and_back(page: browser.Page, made: Path) -> None:
    page.open(made, 1280)
    head = "[...document.querySelectorAll('th')].filter(h => h.textContent == 'rows')[0]"
    column = f"[...{head}.closest('table').tBodies[0].rows].map(r => r.cells[{head}.cellIndex].textContent)"
    assert page.evaluate(column) == ["1,000", "100", "310", "100", "310"]
    page.evaluate(f"{head}.click()")
    assert page.evaluate(column) == ["100", "100", "310", "310", "1,000"]
    assert page.evaluate(f"{head}.getAttribute('aria-sort')") == "ascending"
    page.evaluate(f"{head}.click()")
    assert page.evaluate(column) == ["1,000", "310", "310", "100", "100"]


def test_it_prints_on_a4_without_cut_off_tables(page: browser.Page, made: Path) -> None:
    page.call("Emulation.setEmulatedMedia", media="print")
    page.open(made, 680)  # A4 less its margins, in CSS pixels
    wider = "[...document.querySelectorAll('table')].filter(t => t.offsetWidth > innerWidth).length"
    assert page.evaluate(wider) == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= 680
    assert page.pdf().startswith(b"%PDF")
    page.call("Emulation.setEmulatedMedia", media="")
