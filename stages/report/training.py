"""How training went: loss, learning rate and evaluations on the way."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from formats.errors import ArtifactError
from formats.runs import read_evaluations, read_metrics
from stages.report import numbers
from stages.report.axis import Axis
from stages.report.document import Block, Chart, Text
from stages.report.svg import Plot, thinned

_SMOOTH = 30  # means over a thirtieth of the steps


def training(run: Path) -> list[Block]:
    """Curves of a run.

    Raises:
        ArtifactError: ``metrics.jsonl`` is missing or damaged, or holds no step.
    """
    steps = list(read_metrics(run))
    if not steps:
        raise ArtifactError(f"{run / 'metrics.jsonl'} holds no step")
    try:
        loss, rate = (
            np.array([float(s[name]) for s in steps]) for name in ("loss", "learning_rate")
        )
    except (KeyError, TypeError, ValueError):
        raise ArtifactError(
            f"{run / 'metrics.jsonl'}: a step has no loss or learning rate"
        ) from None
    if len(steps) == 1:
        return [Text(f"One step, with a loss of {loss[0]:.4f}: there is no curve.")]
    return [_loss(run, loss), _rate(rate)]


def _loss(run: Path, loss: np.ndarray) -> Chart:
    step, shown = thinned(loss)
    x = Axis("step", 0, len(loss) - 1, whole=True)
    checks = _checks(run)
    y = Axis.of("loss", shown, *(values for _, values in checks.values()))
    plot = Plot("Training loss", x, y)
    plot.line(step, shown, 1, "thin")
    window = max(1, len(loss) // _SMOOTH)
    smooth = np.convolve(loss, np.ones(window) / window, mode="valid")
    at, values = thinned(smooth)
    plot.line(at + (window - 1) / 2, values, 1)
    legend = [(1, f"training{f', mean of {window} steps' if window > 1 else ''}")]
    for colour, (name, (when, figures)) in zip(range(2, 9), checks.items(), strict=False):
        plot.line(when, figures, colour)
        plot.dots(when, figures, colour)
        legend.append((colour, f"evaluated on {name}"))
    return Chart(plot.title, plot.svg(), legend)


def _checks(run: Path) -> dict[str, tuple[list[float], list[float]]]:
    """By source: the steps of evaluations, and their losses."""
    found: dict[str, tuple[list[float], list[float]]] = {}
    for line in read_evaluations(run):
        for source, figures in line["eval"].items():
            if isinstance(figures, dict) and "loss" in figures:
                steps, losses = found.setdefault(Path(source).name, ([], []))
                steps.append(float(line["step"]))
                losses.append(float(figures["loss"]))
    return found


def _rate(rate: np.ndarray) -> Chart:
    step, shown = thinned(rate)
    y = Axis.of("learning rate", shown, zero=True, write=lambda value: f"{value:.3g}")
    plot = Plot("Learning rate", Axis("step", 0, len(rate) - 1, whole=True), y)
    plot.line(step, shown, 3)
    return Chart(plot.title, plot.svg(), (), f"{numbers.several(len(rate), 'step')} in all.")
