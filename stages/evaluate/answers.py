"""How a generated answer is compared with its reference.

Normalisation as in the evaluation of SQuAD (Rajpurkar et al. 2016, arXiv:1606.05250): lower case, no ASCII
punctuation, no English articles (a, an, the), single spaces. It hides what differs in signs alone, so the
comparison to the letter is always reported beside it; a reference of which nothing is left is compared to
the letter only.
"""

from __future__ import annotations

import re
import string
from collections import Counter

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalise(text: str) -> str:
    """Lower case, without punctuation and articles, words divided by single spaces."""
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def compare(answer: str, reference: str) -> dict[str, float]:
    """``exact_match`` (0 or 1), ``f1`` (0 to 1) and ``verbatim`` (0 or 1).

    F1 is the harmonic mean of precision and recall over the two texts' normalised words, with their
    number; white space around a text never counts.
    """
    verbatim = float(answer.strip() == reference.strip())
    wanted = normalise(reference)
    if not wanted:
        return {"exact_match": verbatim, "f1": verbatim, "verbatim": verbatim}
    got = normalise(answer)
    return {
        "exact_match": float(got == wanted),
        "f1": _f1(got.split(), wanted.split()),
        "verbatim": verbatim,
    }


def _f1(got: list[str], wanted: list[str]) -> float:
    common = sum((Counter(got) & Counter(wanted)).values())
    return 2 * common / (len(got) + len(wanted))
