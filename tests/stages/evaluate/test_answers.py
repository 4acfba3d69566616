"""Normalisation and F1; the expected values of SQuAD's kind are worked out by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stages.evaluate.answers import compare, normalise


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("The  Cat, sat!", "cat sat"),
        ("an apple a day", "apple day"),
        ("theatre", "theatre"),
        ("+ - *", ""),
        ("U.S.A.", "usa"),
    ],
)
def test_normalise(text: str, normal: str) -> None:
    assert normalise(text) == normal


@pytest.mark.parametrize(
    ("answer", "reference", "figures"),
    [
        ("The brain.", "brain", (1.0, 1.0, 0.0)),
        (" brain\n", "brain", (1.0, 1.0, 1.0)),
        ("left brain", "brain stem", (0.0, 0.5, 0.0)),
        ("", "brain", (0.0, 0.0, 0.0)),
        # SQuAD's normalisation cannot tell these apart.
        ("- number0 number1", "+ number0 number1", (1.0, 1.0, 0.0)),
        # Nothing is left of them: compared to the letter.
        ("-", "+", (0.0, 0.0, 0.0)),
        ("+", "+", (1.0, 1.0, 1.0)),
        # precision 2/3, recall 2/2
        ("x x y", "x y", (0.0, 0.8, 0.0)),
    ],
)
def test_compare(answer: str, reference: str, figures: tuple[float, ...]) -> None:
    assert tuple(compare(answer, reference).values()) == pytest.approx(figures)


@given(st.text(max_size=40), st.text(max_size=40))
def test_f1_is_symmetric_and_one_for_a_match(first: str, second: str) -> None:
    found, back = compare(first, second), compare(second, first)
    assert 0 <= found["f1"] <= 1
    if normalise(first) and normalise(second):
        assert found["f1"] == pytest.approx(back["f1"])
    assert compare(first, first) == {"exact_match": 1.0, "f1": 1.0, "verbatim": 1.0}
    if found["exact_match"]:
        assert found["f1"] == 1
