"""Tables of what `cluster-cli compare` found, from the files that `docs/keep.py` has kept."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from measurements import RESULTS, read, table

sys.path[:0] = [str(RESULTS.parents[1]), str(RESULTS.parents[1] / "examples" / "practice_bank")]

from generate import TAILS  # noqa: E402

from formats.comparison import interval  # noqa: E402
from formats.evaluation import LOSSES  # noqa: E402
from stages.compare.statistics import Estimate, difference  # noqa: E402

Json = dict[str, Any]
_RAREST = list(TAILS["long"])[10:]
_FREQUENT = ("-", "+", "*", "/", "- +", "+ +")  # operators of word problems with 100 rows and more
_ASKED = ("information", "symptoms", "treatment", "inheritance", "frequency", "genetic changes")
_BANK = (
    "skill",
    lambda skill: skill in _RAREST,
    f"the six rarest skills, {', '.join(_RAREST)}",
    TAILS["long"],
)


class Compared(NamedTuple):
    """How a comparison is shown: what it is of, its groups, and which of them are rare.

    Where dev rows are spread evenly over groups, ``shares`` says how frequent each is in the pool.
    Rows that a default was chosen by are no ``result``: they are in the measurements, not in the README.
    """

    title: str
    about: str
    column: str
    is_rare: Callable[[str], bool]
    rare: str
    shares: Mapping[str, float] = {}
    result: bool = True


COMPARED = {
    "bank": Compared(
        "Practice bank",
        "`make bench`: 12,000 rows with a long tail, 31 %, 3 epochs each, rows and dev rows other than "
        "those the defaults were chosen on",
        *_BANK,
    ),
    "bank_tuning": Compared(
        "Practice bank, the rows by which defaults are chosen",
        "as `make bench`, drawn with another seed",
        *_BANK,
        result=False,
    ),
    "bank_large": Compared(
        "Practice bank, three times the rows",
        "`make bench ROWS=36000 ARMS=full,random,cluster SEEDS=2`: the same lessons, each repeated "
        "more often; the number of fine clusters was raised after a first look at seed 0 of these rows; "
        "with `trim = 0.01` under [select]",
        *_BANK,
    ),
    "steps": Compared(
        "Fewer rows, or fewer steps",
        "the practice bank of `make bench`, `compare --equal-steps`: arms with `+steps` repeat their rows "
        "for as many steps as all rows take",
        *_BANK,
    ),
    "words": Compared(
        "Word problems",
        "`make bench-words` with `svamp/train.csv`: 2,218 rows, 500 dev rows, 31 %, 6 epochs each, "
        "a story model of 260 thousand parameters that learns to write the equation",
        "operators",
        lambda operators: operators not in _FREQUENT,
        "equations whose operators fewer than 100 rows have",
    ),
    "medquad": Compared(
        "MedQuAD",
        "`make bench-story SEEDS=3`: 1,600 rows cut to 256 tokens, 400 dev rows, 31 %, 2 epochs each at "
        "the learning rate best for all rows of another part, a story model of 260 thousand parameters",
        "group",
        lambda qtype: qtype not in _ASKED,
        "questions other than of the six most frequent types",
    ),
    "smollm_medquad": Compared(
        "SmolLM2-135M on MedQuAD",
        "`make bench-medquad SEEDS=2`: 320 rows cut to 128 tokens, 120 dev rows, 31 %, 2 epochs each at a "
        "learning rate of 1e-4 that was not tuned, bfloat16, `trim = 0.01`; cluster-proxy is scored with "
        "the story model",
        "group",
        lambda qtype: qtype not in _ASKED,
        "questions other than of the six most frequent types",
    ),
    "smollm_code": Compared(
        "SmolLM2-135M on code",
        "`make bench-code SEEDS=2`: 165 instructions and 55 small Python tasks (MBPP) cut to 128 tokens, "
        "80 and 40 dev rows, the rest as on MedQuAD",
        "group",
        lambda source: source == "mbpp",
        "the Python tasks",
    ),
}


def tables() -> Iterator[str]:
    """For the README: every comparison's table, and what was said of the method itself."""
    for how, found in filter(lambda kept: kept[0].result, _kept()):
        about_us = [s for s in found["verdicts"] if s.startswith("cluster: ")]
        yield _table(found, how) + "\n" + "".join(f"* {sentence}\n" for sentence in about_us)


def section() -> str:
    """For the measurements: everything that the comparisons said, and the learning curve."""
    parts = [
        "## Comparisons, sentence by sentence\n\nThe tables are in the [README](../README.md).\n"
    ]
    for how, found in _kept():
        sentences = "".join(f"* {sentence}\n" for sentence in found["verdicts"])
        title = f"**{how.title}**, {found['params']['seeds']} seeds:"
        parts.append(f"{title if how.result else _table(found, how)}\n\n{sentences}")
    parts.append(_order())
    parts.append(_curve(read("comparison_curve")))
    return "\n".join(parts)


def _kept() -> Iterator[tuple[Compared, Json]]:
    for name, how in COMPARED.items():
        if (RESULTS / f"comparison_{name}.json").exists():
            yield how, read(f"comparison_{name}")


def _table(result: Json, how: Compared) -> str:
    """Arms beside one another; the losing ones too."""
    metric = result["params"]["metric"]
    loss = metric in LOSSES
    views = {
        "all groups alike" if how.shares else metric: _over(result, metric, how, lambda _: True),
        **({"as frequent as in the pool": _over(result, metric, how)} if how.shares else {}),
        "rare": _over(result, metric, how, how.is_rare),
    }
    rows = [["arm", "rows", *(title for view in views for title in (view, "against random"))]]
    rows[0].append("net saving")
    for arm in result["arms"]:
        name, net = arm["arm"], arm.get("savings", {}).get("net_share")
        figures: list[str] = []
        for of in views.values():
            gap = "" if name == "random" else _gap(of[name], of["random"], loss)
            figures += [_level(of[name], loss), gap]
        rows.append([name, f"{arm['rows']:,}", *figures, "" if net is None else f"{net:+.0%}"])
    figure, unit = "answer loss on dev rows in nats", ""
    if not loss:
        figure, unit = "accuracy to the letter on dev rows in percent", " in points"
    return (
        f"**{how.title}, {result['params']['seeds']} seeds** ({how.about}; {figure}, mean and standard "
        f"deviation over seeds; differences{unit} with their 95 % interval, paired over seeds, one arm at "
        f"a time, in bold where it leaves out zero; rare: {how.rare}):\n\n" + table(*rows)
    )


def _over(
    result: Json, metric: str, how: Compared, of: Callable[[str], bool] | None = None
) -> dict[str, list[float]]:
    """By arm, one figure per seed: over the dev rows of some groups, or of all, groups by their shares."""
    found: dict[str, list[float]] = {}
    for trial in sorted(result["trials"], key=lambda trial: trial["seed"]):
        groups = trial["results"]["by"][how.column]
        weights = {
            name: group[metric]["examples"] * of(name) if of else how.shares[name]
            for name, group in groups.items()
        }
        total = sum(weight * groups[name][metric]["value"] for name, weight in weights.items())
        found.setdefault(trial["arm"], []).append(total / sum(weights.values()))
    return found


def _level(values: list[float], loss: bool) -> str:
    found = Estimate.of(values)
    scale, digits = (1, 3) if loss else (100, 1)
    return f"{scale * found.mean:.{digits}f} ± {scale * (found.deviation or 0):.{digits}f}"


def _gap(values: list[float], others: list[float], loss: bool) -> str:
    found = difference(values, others)
    scale, digits = (1, 3) if loss else (100, 1)
    mean = f"{scale * found.mean:+.{digits}f}"
    if found.low is None or found.high is None:
        return mean
    text = f"{mean} ({scale * found.low:+.{digits}f} to {scale * found.high:+.{digits}f})"
    return f"**{text}**" if found.low > 0 or found.high < 0 else text


def _order() -> str:
    """The same rows in the balanced order: what the order alone does."""
    found = []
    for name in ("bank", "words"):
        how, result = COMPARED[name], read(f"comparison_{name}")
        of = _over(result, result["params"]["metric"], how, lambda _: True)
        gap = _gap(of["cluster-balanced-order"], of["cluster"], loss=False)
        found.append(f"* {how.title}, {result['params']['seeds']} seeds: {gap} points.\n")
    return (
        "**The order alone**: `cluster-balanced-order` less `cluster`, which trains on the same rows in "
        "the order of `--strategy disjoint`; accuracy over all dev rows, paired over seeds:\n\n"
        + "".join(found)
    )


def _curve(result: Json) -> str:
    """Quality by fraction in three views, and the fraction that is nearly as good as everything."""
    how, metric, seeds = COMPARED["bank"], result["params"]["metric"], result["params"]["seeds"]
    arms = [curve["arm"] for curve in result["curves"]]
    # A budget is whole rows: 0.31 of them may be 0.3099.
    fractions = [round(fraction, 2) for fraction in result["curves"][0]["fractions"][:-1]]
    percents = [f"{100 * fraction:.0f} %" for fraction in fractions]
    parts = [
        f"**Learning curves**, the practice bank of `make bench`, {seeds} seeds, equal epochs: accuracy on "
        "dev rows in percent by the part of the rows that was trained on, mean and standard deviation over "
        f"seeds (`make bench ARMS=full,{','.join(arms)} SEEDS={seeds} "
        f"FRACTIONS='{' '.join(map(str, fractions))}'`, with "
        "`trim = 0.01` under [select]).\n\n"
    ]
    enough = ["99 % of full from", *(_enough(curve["needed"]) for curve in result["curves"])]
    views: list[tuple[str, Callable[[str], bool] | None, list[list[str]]]] = [
        (
            "All skills alike; and the part from which on it is 99 % of full training's, with its 95 % "
            "interval",
            lambda _: True,
            [enough],
        ),
        ("Skills as frequent as in the pool", None, []),
        (f"Rare: {how.rare}", how.is_rare, []),
    ]
    for title, groups, more in views:
        of = _over(result, metric, how, groups)
        columns = [["arm", *arms]]
        for percent in percents:
            levels = (_level(of[f"{arm} {percent}"], loss=False) for arm in arms)
            columns.append([percent, *levels])
        columns.append(["100 %", *[_level(of["full"], loss=False)] * len(arms)])
        parts.append(f"{title}:\n\n{table(*zip(*columns, *more, strict=True))}\n")
    return "".join(parts)


def _enough(needed: Json) -> str:
    return f"{needed['mean']:.0%} ({interval(needed)})"
