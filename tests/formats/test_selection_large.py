"""Large selections are parsed by pyarrow: nothing is read that the plain way would not read the same."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from formats import selection as selections
from formats.artifacts import Header
from formats.errors import ArtifactError
from formats.selection import FIELDS, read_selection, write_selection
from tests.synthetic import make_ids

ROWS = 300


def columns(seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "row": np.cumsum(random.integers(1, 2**20, ROWS)),
        "id": make_ids(np.arange(ROWS)),
        "cluster": random.integers(0, 2**31, ROWS).astype(np.int32),
        "weight": np.exp(random.normal(0, 50, ROWS)),
        "similarity": random.uniform(-1, 1, ROWS).astype(np.float32),
        "tokens": random.integers(1, 2**31, ROWS).astype(np.int32),
    }


@pytest.fixture(params=[0, 1 << 20])
def either_way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """All files parsed by pyarrow, and none; in parts of 10 kB."""
    monkeypatch.setattr(selections, "_SMALL", request.param)
    monkeypatch.setattr(selections, "_BYTES_AT_ONCE", 10_000)
    return int(request.param)


def written(path: Path, changes: dict[int, str] = {}) -> Path:  # noqa: B006 - never changed
    """``ROWS`` examples; ``changes`` says other lines than those written, by number."""
    header = Header("selection", "key", {}, [], stats={"selected": ROWS})
    write_selection(path, header, columns())
    lines = path.read_text().splitlines(keepends=True)
    for number, text in changes.items():
        lines[number - 1] = text
    path.write_text("".join(lines))
    return path


def line(number: int, **changes: Any) -> str:
    """Line ``number`` as it should be, but for the changes."""
    values = {name: column[number - 2] for name, column in columns().items()}
    item = {
        name: bytes(value).hex() if name == "id" else value.item() for name, value in values.items()
    }
    return json.dumps({**item, **changes}) + "\n"


@pytest.mark.usefixtures("either_way")
def test_every_digit_comes_back(tmp_path: Path) -> None:
    found, wanted = read_selection(written(tmp_path / "s.jsonl")), columns()
    for name in FIELDS:
        got = getattr(found, name)
        if name == "similarity":
            assert np.abs(got - wanted[name]).max() < 1e-6  # written with six digits
        else:
            assert np.array_equal(got, wanted[name]), name


def test_pyarrow_is_used_when_it_pays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    data = b"".join(written(tmp_path / "s.jsonl").read_bytes().splitlines(keepends=True)[1:])
    assert selections._fast(data) is None
    monkeypatch.setattr(selections, "_SMALL", 0)
    assert selections._fast(data) is not None


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    "text",
    [
        line(150, more=[1, {"a": None}]),
        line(150).replace(", ", ",   "),
        line(150).replace('{"row"', '{"tokens": 5, "row"'),  # said twice: the last one counts
    ],
)
def test_lines_of_other_hands_are_read(tmp_path: Path, text: str) -> None:
    found = read_selection(written(tmp_path / "s.jsonl", {150: text}))
    for name in ("row", "weight", "tokens"):
        assert np.array_equal(getattr(found, name), columns()[name])


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (line(150, weight=0), "weight is 0, not a positive number"),
        (line(150, weight=float("nan")), "weight is NaN, not a positive number"),
        (line(150, tokens=3.0), "tokens is 3.0, not an integer of at least 1"),
        (line(150, tokens=0), "tokens is 0, not an integer of at least 1"),
        (line(150, row=True), "row is true, not an integer of at least 0"),
        (line(150, cluster=-1), "cluster is -1, not an integer of at least 0"),
        (line(150, similarity=1.5), "similarity is 1.5, not a cosine"),
        (line(150, id="ab"), 'id is "ab", not 32 hexadecimal digits'),
        (line(150, id="x" * 32), f'id is "{"x" * 32}", not 32 hexadecimal digits'),
        (line(150, id=None), "id is null, not 32 hexadecimal digits"),
        ("[1]\n", "not a JSON object"),
        ("\n", "not a JSON object"),
        ("{}\n", "no row, id, cluster, weight, similarity, tokens"),
    ],
)
def test_the_same_line_is_blamed(tmp_path: Path, text: str, problem: str) -> None:
    path = written(tmp_path / "s.jsonl", {150: text})
    with pytest.raises(ArtifactError) as error:
        read_selection(path)
    assert str(error.value).startswith(f"{path}:150: {problem}; rebuild it")


@settings(max_examples=150, deadline=None)
@given(
    name=st.sampled_from(FIELDS),
    value=st.one_of(
        st.integers(-3, 3),
        st.floats(),
        st.sampled_from(
            [2**31, 2**63, 2**64, 1e400, None, True, "7", "", "a" * 32, "A" * 32, [], {}]
        ),
    ),
)
def test_what_pyarrow_accepts_the_plain_way_reads_the_same(name: str, value: Any) -> None:
    text = "".join(line(number) for number in range(2, 12)) + line(12, **{name: value})
    small, selections._SMALL = selections._SMALL, 0
    try:
        fast = selections._fast(text.encode())
    finally:
        selections._SMALL = small
    if fast is not None:
        lines = text.encode().splitlines(keepends=True)
        for one, other in zip(fast, selections._columns(Path("s"), lines, 2), strict=True):
            assert one.dtype == other.dtype
            assert np.array_equal(one, other)
