"""The results section of the README, from committed measurements: no figure is typed by hand."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, NamedTuple

from measurements import RESULTS, read, spread, table

sys.path[:0] = [str(RESULTS.parents[1]), str(RESULTS.parents[1] / "examples" / "practice_bank")]

from generate import SKILLS  # noqa: E402

from stages.compare.statistics import Estimate, difference  # noqa: E402

Json = dict[str, Any]
_FREQUENT = ("-", "+", "*", "/", "- +", "+ +")  # operators of word problems with 100 rows and more


class Compared(NamedTuple):
    """How a comparison is shown: what it is of, its groups, and which of them are rare."""

    title: str
    about: str
    column: str
    is_rare: Callable[[str], bool]
    rare: str


_COMPARED = {
    "bank": Compared(
        "Practice bank",
        "`make bench`: 12,000 rows with a long tail, 31 %, 3 epochs each, rows and dev rows other than "
        "those the defaults were chosen on",
        "skill",
        lambda skill: skill in list(SKILLS)[10:],
        f"the six rarest skills, {', '.join(list(SKILLS)[10:])}",
    ),
    "words": Compared(
        "Word problems",
        "`make bench-words` with `svamp/train.csv`: 2,218 rows, 500 dev rows, 31 %, 6 epochs each, a story "
        "model of 260 thousand parameters that learns to write the equation",
        "operators",
        lambda operators: operators not in _FREQUENT,
        "equations whose operators fewer than 100 rows have",
    ),
}
_SHORT = ("rank 16, unsketched", "rank 64, D 4096 (default)", "bfloat16", "last layer")


def section() -> str:
    """All result tables, in Markdown."""
    parts = [_bank(read("practice_bank")), _smollm(read("smollm")), _fidelity(read("fidelity"))]
    parts[1:1] = [
        _comparison(read(f"comparison_{name}"), how)
        for name, how in _COMPARED.items()
        if (RESULTS / f"comparison_{name}.json").exists()
    ]
    return "\n".join(
        [
            *parts,
            "More, with everything that was tried: [docs/measurements.md](docs/measurements.md).\n",
        ]
    )


def _bank(result: Json) -> str:
    accuracy, arms = result["accuracy"], result["arms"]
    cost = sum(result["selection_seconds"].values())
    saved = arms["full"]["run"]["train_seconds"] - arms["selected"]["run"]["train_seconds"]
    match = result["agreement"]
    rows = [["", "before", "selected", "all rows"]]
    rows.append(
        ["rows", "", *(f"{arms[a]['selection']['selected']:,}" for a in ("selected", "full"))]
    )
    rows.append(
        ["training tokens", "", *(f"{arms[a]['run']['tokens']:,}" for a in ("selected", "full"))]
    )
    rows.append(
        [
            "accuracy, mean over 16 skills",
            *(f"{accuracy[m]['macro']:.1%}" for m in ("before", "selected", "full")),
        ]
    )
    return (
        "**Practice bank** (`make demo`, seed 0; 2 CPU ranks, equal epochs and learning rate):\n\n"
        + table(*rows)
        + f"\nClusters follow skills (adjusted Rand {match['skill']['adjusted_rand']:.2f}) and not "
        f"topics ({match['topic']['adjusted_rand']:.2f}). 31 % of the rows do not teach this small "
        "model as much as all of them: at equal epochs it takes a third of the steps. Selecting cost "
        f"{cost:.1f} s and saved {saved:.1f} s of training, on balance {saved - cost:+.1f} s: with a "
        "model this small, it does not pay. The bank was designed while looking at these dev rows.\n"
    )


def _comparison(result: Json, how: Compared) -> str:
    """Arms beside one another; the losing ones too."""
    params = result["params"]
    metric = params["metric"]
    rows = [["arm", "rows", metric, "against random", "rare", "against random", "net saving"]]
    overall, groups = _by_seed(result, metric, how)
    for arm in result["arms"]:
        name, net = arm["arm"], arm.get("savings", {}).get("net_share")
        rows.append(
            [
                name,
                f"{arm['rows']:,}",
                _points(overall[name]),
                "" if name == "random" else _gap(overall[name], overall["random"]),
                _points(groups[name]),
                "" if name == "random" else _gap(groups[name], groups["random"]),
                "" if net is None else f"{net:+.0%}",
            ]
        )
    return (
        f"**{how.title}, {params['seeds']} seeds** ({how.about}; accuracy to the letter on "
        "dev rows in percent, mean and standard deviation over seeds; differences in points with their "
        f"95 % interval, paired over seeds, one arm at a time; rare: {how.rare}):\n\n"
        + table(*rows)
        + "\nWhat the tool says, sentence by sentence:\n\n"
        + "".join(f"* {sentence}\n" for sentence in result["verdicts"])
    )


def _by_seed(
    result: Json, metric: str, how: Compared
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """By arm, one figure per seed: over all dev rows, and over those of rare groups."""
    overall: dict[str, list[float]] = {}
    groups: dict[str, list[float]] = {}
    for trial in sorted(result["trials"], key=lambda trial: trial["seed"]):
        found = trial["results"]
        of = {n: v[metric] for n, v in found["by"][how.column].items() if how.is_rare(n)}
        overall.setdefault(trial["arm"], []).append(found["overall"][metric]["value"])
        hits = sum(group["value"] * group["examples"] for group in of.values())
        examples = sum(group["examples"] for group in of.values())
        groups.setdefault(trial["arm"], []).append(hits / examples)
    return overall, groups


def _points(values: list[float]) -> str:
    found = Estimate.of(values)
    return f"{100 * found.mean:.1f} ± {100 * (found.deviation or 0):.1f}"


def _gap(values: list[float], others: list[float]) -> str:
    found = difference(values, others)
    if found.low is None or found.high is None:
        return f"{100 * found.mean:+.1f}"
    text = f"{100 * found.mean:+.1f} ({100 * found.low:+.1f} to {100 * found.high:+.1f})"
    return f"**{text}**" if found.low > 0 or found.high < 0 else text


def _smollm(result: Json) -> str:
    rows = [["400 rows of", "clusters", "effective sample size", "loss before", "after"]]
    for name, line in result["runs"].items():
        rows.append(
            [
                name,
                str(line["clusters"]),
                f"{line['effective_sample_size']:.0f} of {line['selected']}",
                f"{line['before']:.3f}",
                f"{line['after']:.3f}",
            ]
        )
    return (
        f"**SmolLM2-135M**, {result['what']}:\n\n"
        + table(*rows)
        + "\nOne seed, and no other selection to compare with yet.\n"
    )


def _fidelity(result: Json) -> str:
    rows = [["signature", "numbers", "all pairs", "within a source", "cost"]]
    for line in result["results"]:
        name = line["signature"]
        if name in _SHORT or name.startswith(("head (forward only), rank 64", "mean hidden")):
            rows.append(
                [
                    name,
                    f"{line['numbers']:,}",
                    f"{line['correlation']:.2f}",
                    f"{line['within_source']:.2f}",
                    spread(line["cost"]) if "cost" in line else "",
                ]
            )
    return (
        f"**How faithful is a signature?** SmolLM2-135M, {result['rows']} rows of "
        f"{', '.join(result['sources'])}, {result['length']} tokens at most: rank correlation of all "
        "pairwise cosines with those of exact gradients, and processor time as a fraction of a training "
        "step's (`tests/benchmarks/fidelity.py`):\n\n" + table(*rows)
    )
