"""Small charts as inline SVG: their size follows the page, their colours are the style sheet's.

A colour is a number, 1 to 8, or 0 for grey. Points are zero-length strokes of one path, a few bytes each.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape

import numpy as np

from stages.report.axis import Axis, Numbers

WIDTH, HEIGHT = 460, 268
COLOURS = 8
_LEFT, _RIGHT, _TOP, _BOTTOM = 56, 20, 28, 44
_ROW, _GUTTER, _NAME, _ABOVE = (
    25,
    150,
    21,
    10,
)  # of a chart of rows: height, room for names, letters, space above


class _Drawing:
    """A frame, its parts, and the words read out instead of it."""

    def __init__(self, title: str, height: float) -> None:
        self.title, self.height = title, height
        self.parts: list[str] = []

    def path(self, kind: str, colour: int, data: str) -> None:
        if data:
            self.parts.append(f'<path class="{kind} c{colour}" d="{data}"/>')

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        said = f' class="{kind}"' if kind else ""
        self.parts.append(f'<text{said} x="{_n(x)}" y="{_n(y)}">{escape(text)}</text>')

    def svg(self) -> str:
        """The drawing as markup."""
        return (
            f'<svg viewBox="0 0 {WIDTH} {_n(self.height)}" role="img" '
            f'aria-label="{escape(self.title)}">{"".join(self.parts)}</svg>'
        )


class Plot(_Drawing):
    """A chart over two axes. What is drawn later lies on top."""

    def __init__(self, title: str, x: Axis, y: Axis, *, bare: bool = False) -> None:
        super().__init__(title, HEIGHT + 80 if bare else HEIGHT)
        self.x, self.y = x, y
        self._left: float = 4 if bare else _LEFT
        self._bottom: float = self.height - 4 if bare else HEIGHT - _BOTTOM
        if not bare:
            self._frame()

    def _frame(self) -> None:
        for tick in self.y.ticks(5):
            level = float(self._ys(tick))
            self.path("grid", 0, f"M{_LEFT} {_n(level)}H{WIDTH - _RIGHT}")
            self.text(_LEFT - 7, level + 4, self.y.write(tick), "end")
        for tick in self.x.ticks(6):
            self.text(float(self._xs(tick)), self._bottom + 17, self.x.write(tick), "mid")
        self.path("axis", 0, f"M{_LEFT} {_n(self._bottom)}H{WIDTH - _RIGHT}")
        self.text((_LEFT + WIDTH - _RIGHT) / 2, HEIGHT - 6, self.x.label, "mid soft")
        self.text(0, 14, self.y.label, "soft")

    def _xs(self, values: Numbers | float) -> np.ndarray:
        return self.x.place(values, self._left, WIDTH - _RIGHT)

    def _ys(self, values: Numbers | float) -> np.ndarray:
        return self.y.place(values, self._bottom, _TOP)

    def line(self, xs: Numbers, ys: Numbers, colour: int, kind: str = "line") -> None:
        """A line through points; the kinds ``line``, ``thin`` and ``dash``."""
        self.path(kind, colour, _through(self._xs(xs), self._ys(ys)))

    def band(self, xs: Numbers, low: Numbers, high: Numbers, colour: int) -> None:
        """The area between two lines."""
        across, upper = self._xs(xs), _through(self._xs(xs), self._ys(high))
        lower = _through(across[::-1], self._ys(low)[::-1])
        self.path("band", colour, f"{upper}L{lower[1:]}Z" if upper else "")

    def bars(self, starts: Numbers, ends: Numbers, ys: Numbers, colour: int) -> None:
        """Bars from zero up, each from one place on the axis to another."""
        left, right = self._xs(starts), self._xs(ends)
        gap = 1.0 if len(left) and float(np.min(right - left)) > 4 else 0.0
        edges = zip(left, right - gap, self._ys(ys), strict=True)
        floor = _n(self._bottom)
        self.path(
            "bar",
            colour,
            "".join(f"M{_n(a)} {floor}V{_n(top)}H{_n(b)}V{floor}" for a, b, top in edges),
        )

    def dots(self, xs: Numbers, ys: Numbers, colour: int, kind: str = "dots") -> None:
        """Points; the kinds ``dots``, ``small`` and ``faint``."""
        self.path(kind, colour, _points(self._xs(xs), self._ys(ys)))

    def whiskers(self, xs: Numbers, low: Numbers, high: Numbers, colour: int) -> None:
        """Upright intervals."""
        each = zip(self._xs(xs), self._ys(low), self._ys(high), strict=True)
        self.path("line", colour, "".join(f"M{_n(x)} {_n(a)}V{_n(b)}" for x, a, b in each))

    def mark(self, x: float, text: str, colour: int = 2) -> None:
        """An upright line with a text at its head."""
        place = float(self._xs(x))
        self.path("dash", colour, f"M{_n(place)} {_n(self._bottom)}V{_TOP}")
        right = place < WIDTH * 0.6
        self.text(
            place + (6 if right else -6), self._bottom - 8, text, "rim" if right else "rim end"
        )

    def label(self, x: float, y: float, text: str) -> None:
        """A word at a place, with a rim that keeps it readable."""
        self.text(float(self._xs(x)), float(self._ys(y)) + 4, text, "mid rim bold")


class Rows(_Drawing):
    """A chart of named rows, top to bottom, over one axis."""

    def __init__(self, title: str, names: Sequence[str], x: Axis) -> None:
        super().__init__(title, _ABOVE + _ROW * len(names) + _BOTTOM)
        self.x = x
        bottom = self.height - _BOTTOM
        for tick in x.ticks(5):
            place = float(self._xs(tick))
            self.path("grid", 0, f"M{_n(place)} {_ABOVE}V{_n(bottom)}")
            self.text(place, bottom + 17, x.write(tick), "mid")
        for number, name in enumerate(names):
            short = name if len(name) <= _NAME else name[: _NAME - 1] + "…"
            self.text(_GUTTER - 8, self._level(number) + 4, short, "end")
        self.text((_GUTTER + WIDTH - _RIGHT) / 2, self.height - 6, x.label, "mid soft")

    def _xs(self, values: Numbers | float) -> np.ndarray:
        return self.x.place(values, _GUTTER, WIDTH - _RIGHT)

    def _level(self, number: float) -> float:
        return _ABOVE + _ROW * (number + 0.5)

    def bars(self, starts: Numbers, ends: Numbers, colour: int) -> None:
        """Lying bars from one place on the axis to another."""
        each = enumerate(zip(self._xs(starts), self._xs(ends), strict=True))
        boxes = ((self._level(i) - 8, a, b) for i, (a, b) in each)
        self.path(
            "bar", colour, "".join(f"M{_n(a)} {_n(top)}H{_n(b)}v16H{_n(a)}Z" for top, a, b in boxes)
        )

    def dots(self, values: Numbers, colour: int, shift: float = 0.0) -> None:
        """A point in each row, ``shift`` rows lower; NaN for none."""
        levels = np.array([self._level(i + shift) for i in range(len(values))])
        self.path("dots", colour, _points(self._xs(values), levels))

    def intervals(self, low: Numbers, high: Numbers, colour: int, shift: float = 0.0) -> None:
        """A lying interval in each row; NaN for none."""
        each = enumerate(zip(low, high, strict=True))
        kept = [
            (self._level(i + shift), *self._xs([a, b])) for i, (a, b) in each if a == a and b == b
        ]
        self.path("line", colour, "".join(f"M{_n(a)} {_n(y)}H{_n(b)}" for y, a, b in kept))

    def mark(self, x: float) -> None:
        """An upright line through all rows."""
        self.path("dash", 0, f"M{_n(float(self._xs(x)))} {_ABOVE}V{_n(self.height - _BOTTOM)}")


def thinned(values: Numbers, most: int = 300) -> tuple[np.ndarray, np.ndarray]:
    """A long series as the means of at most so many stretches: places (middle of each) and means."""
    series = np.asarray(values, np.float64)
    parts = np.array_split(np.arange(len(series)), min(len(series), most) or 1)
    parts = [part for part in parts if len(part)]
    return np.array([p.mean() for p in parts]), np.array([series[p].mean() for p in parts])


def _through(xs: Iterable[float], ys: Iterable[float]) -> str:
    return "".join(
        f"{'L' if i else 'M'}{_n(x)} {_n(y)}" for i, (x, y) in enumerate(_finite(xs, ys))
    )


def _points(xs: Iterable[float], ys: Iterable[float]) -> str:
    return "".join(f"M{_n(x)} {_n(y)}h0" for x, y in _finite(xs, ys))


def _finite(xs: Iterable[float], ys: Iterable[float]) -> list[tuple[float, float]]:
    return [(x, y) for x, y in zip(xs, ys, strict=True) if math.isfinite(x) and math.isfinite(y)]


def _n(value: float) -> str:
    """A coordinate, to a tenth, as short as can be."""
    return f"{value:.1f}".removesuffix(".0")
