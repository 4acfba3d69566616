"""From examples to figures: overall and by group, each with its bootstrap interval."""

from __future__ import annotations

from typing import Any

import numpy as np

from formats.evaluation import groups, ratios

LEVEL = 0.95
_DRAWS_AT_ONCE = 1 << 22  # resampled places held in memory, 32 MiB

Ratios = dict[str, tuple[np.ndarray, np.ndarray]]


def summarise(examples: dict[str, Any], samples: int, seed: int) -> dict[str, Any]:
    """``{"overall": {metric: figure}, "by": {column: {value: {metric: figure}}}}``.

    Every group is resampled with the same seed, so its interval does not depend on the other groups.

    Args:
        examples: columns as in ``formats.evaluation``.
        samples: bootstrap resamples.
        seed: of the resampling.
    """
    every = ratios(examples)
    return {
        "overall": _figures(every, samples, seed),
        "by": {
            column: {
                value: _figures(_at(every, places), samples, seed)
                for value, places in values.items()
            }
            for column, values in groups(examples).items()
        },
    }


def _at(every: Ratios, places: np.ndarray) -> Ratios:
    return {name: (top[places], bottom[places]) for name, (top, bottom) in every.items()}


def _figures(every: Ratios, samples: int, seed: int) -> dict[str, dict[str, Any]]:
    figures = {}
    for name, (top_N, bottom_N) in every.items():
        known = ~np.isnan(top_N)
        if known.any():
            low, high = interval(top_N[known], bottom_N[known], samples, seed)
            figures[name] = {
                "value": float(top_N[known].sum() / bottom_N[known].sum()),
                "low": low,
                "high": high,
                "examples": int(known.sum()),
            }
    return figures


def interval(
    top_N: np.ndarray, bottom_N: np.ndarray, samples: int = 1000, seed: int = 0
) -> tuple[float | None, float | None]:
    """The percentile bootstrap interval of sum(top) / sum(bottom) over N resampled examples.

    Efron 1979 (doi:10.1214/aos/1176344552); the quantiles are those of ``numpy.quantile``.

    Returns:
        The 2.5 % and 97.5 % quantiles; None for a single example, which says nothing about others.
    """
    count = len(top_N)
    if count < 2:
        return None, None
    random = np.random.default_rng(seed)
    step = max(1, _DRAWS_AT_ONCE // count)
    found = []
    for start in range(0, samples, step):
        place = random.integers(0, count, (min(step, samples - start), count))
        found.append(top_N[place].sum(axis=1) / bottom_N[place].sum(axis=1))
    tail = (1 - LEVEL) / 2
    low, high = np.quantile(np.concatenate(found), (tail, 1 - tail))
    return float(low), float(high)
