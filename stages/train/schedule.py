"""The learning rate as a pure function of the step, so that a resumed run needs no scheduler state."""

from __future__ import annotations

import math


def learning_rate(step: int, *, steps: int, peak: float, warmup: float, schedule: str) -> float:
    """The rate of one optimizer step.

    It rises linearly over the first ``warmup`` part of the steps (the first step is never wasted on a
    rate of 0), then falls to 0 as half a cosine wave (Loshchilov and Hutter 2017, SGDR, without
    restarts) or as a line, or stays.

    Args:
        step: from 0.
        steps: of the whole run.
        peak: the highest rate.
        warmup: part of the steps, 0 <= warmup < 1.
        schedule: cosine, linear or constant.
    """
    rising = round(warmup * steps)
    if step < rising:
        return peak * (step + 1) / rising
    done = (step - rising) / max(1, steps - rising)
    if schedule == "cosine":
        return peak * 0.5 * (1.0 + math.cos(math.pi * done))
    return peak * (1.0 - done) if schedule == "linear" else peak
