"""How evenly the work is dealt: tokens of every rank in every step, beside a random deal."""

from __future__ import annotations

import numpy as np

from formats.allocation import Allocation
from formats.errors import ArtifactError
from stages.report import numbers
from stages.report.axis import Axis
from stages.report.document import Block, Chart, Table, Text
from stages.report.svg import Plot, thinned

_TOLD = (  # figure, its name, digits behind the point
    ("shared_cluster", "chance that two ranks hold the same cluster in a step", 3),
    ("clusters_per_batch", "clusters in a step", 2),
    ("padded_ratio_mean", "tokens with padding, largest rank over mean, on average", 3),
    ("padded_ratio_worst", "the same in the worst step", 3),
    ("waiting", "predicted share of rank time spent waiting", 3),
    ("padding", "share of tokens that are padding", 3),
    ("rank_cosine", "cosine between the mean signatures of two ranks", 3),
)


def balance(plan: Allocation) -> list[Block]:
    """Charts and figures of the first epoch.

    Raises:
        ArtifactError: a rank's file cannot be read or was changed.
    """
    planned_SR, random_SR = work(plan)
    blocks: list[Block] = []
    if plan.ranks > 1:
        blocks += [_tokens(planned_SR), _ratio(planned_SR, random_SR)]
    else:
        blocks.append(Text("One rank does all the work: there is nothing to balance."))
    return [*blocks, _figures(plan)]


def work(plan: Allocation) -> tuple[np.ndarray, np.ndarray]:
    """Tokens with padding, (S, R) int64, of the first epoch's steps: as planned, and when the same rows
    are dealt into the same places at random (seed 0).
    """
    lines = []
    for rank in range(plan.ranks):
        for batch in plan.rank(rank):
            if batch.epoch:
                break
            lines.append((batch.step, rank, batch.tokens))
    if not lines:
        raise ArtifactError(f"{plan.path} has no steps")
    where = np.array([(step, rank) for step, rank, _ in lines])
    sizes = np.array([len(tokens) for *_, tokens in lines])
    tokens = np.array([n for *_, several in lines for n in several], dtype=np.int64)
    shuffled = np.random.default_rng(0).permutation(tokens)
    shape = (plan.steps_per_epoch, plan.ranks)
    return _summed(where, sizes, tokens, shape), _summed(where, sizes, shuffled, shape)


def _summed(
    where: np.ndarray, sizes: np.ndarray, tokens: np.ndarray, shape: tuple[int, int]
) -> np.ndarray:
    """Rows times the longest of them, per micro-batch, added up per step and rank."""
    filled = sizes > 0
    starts = (np.cumsum(sizes) - sizes)[filled]
    padded_SR = np.zeros(shape, dtype=np.int64)
    longest = np.maximum.reduceat(tokens, starts)
    np.add.at(padded_SR, tuple(where[filled].T), longest * sizes[filled])
    return padded_SR


def _tokens(planned_SR: np.ndarray) -> Chart:
    step, most = thinned(planned_SR.max(axis=1))
    least = thinned(planned_SR.min(axis=1))[1]
    mean = thinned(planned_SR.mean(axis=1))[1]
    y = Axis.of("tokens with padding", most, least, zero=True)
    plot = Plot("Work of a rank in each step", Axis.of("step", step, room=0.01, whole=True), y)
    plot.band(step, least, most, 1)
    plot.line(step, mean, 1)
    legend = [(1, "mean rank; the band reaches from the smallest to the largest")]
    return Chart(plot.title, plot.svg(), legend)


def _ratio(planned_SR: np.ndarray, random_SR: np.ndarray) -> Chart:
    planned_S, random_S = (part.max(axis=1) / part.mean(axis=1) for part in (planned_SR, random_SR))
    step, ours = thinned(planned_S)
    theirs = thinned(random_S)[1]
    y = Axis.of("largest rank over mean", ours, theirs, [1.0])
    plot = Plot("Imbalance in each step", Axis.of("step", step, room=0.01, whole=True), y)
    plot.line(step, theirs, 2, "thin")
    plot.line(step, ours, 1)
    note = (
        f"On average {planned_S.mean():.3f} as planned and {random_S.mean():.3f} at random: where it is "
        "above 1, the other ranks wait."
    )
    return Chart(plot.title, plot.svg(), [(1, "as planned"), (2, "the same rows at random")], note)


def _figures(plan: Allocation) -> Table:
    stats = plan.header.stats
    both = [stats.get("plan", {}), stats.get("random", {})]
    rows = [
        (name, *(numbers.number(side.get(key), digits) for side in both))
        for key, name, digits in _TOLD
        if key in both[0]
    ]
    strategy = plan.header.params.get("strategy", "the plan")
    return Table("Balance, as recorded", ("", f"{strategy}", "random"), rows)
