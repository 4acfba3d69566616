"""The results section of the README, from committed measurements: no figure is typed by hand."""

from __future__ import annotations

from typing import Any

from measurements import RESULTS, read, spread, table

Json = dict[str, Any]
_SHORT = ("rank 16, unsketched", "rank 64, D 4096 (default)", "bfloat16", "last layer")


def section() -> str:
    """All result tables, in Markdown."""
    parts = [_bank(read("practice_bank")), _smollm(read("smollm")), _fidelity(read("fidelity"))]
    if (RESULTS / "comparison_bank.json").exists():
        parts.insert(1, _comparison(read("comparison_bank")))
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


def _comparison(result: Json) -> str:
    """Arms of the practice bank beside one another; the losing ones too."""
    params = result["params"]
    metric = params["metric"]
    rows = [
        ["arm", "rows", metric.replace("_", " "), "worst skill", "against random", "net saving"]
    ]
    for arm in result["arms"]:
        quality = arm["quality"]
        gap = next((g for name, g in arm["against"].items() if name.startswith("random")), None)
        gap = gap["differences"][metric] if gap else None
        net = arm.get("savings", {}).get("net_share")
        rows.append(
            [
                arm["arm"],
                f"{arm['rows']:,}",
                _interval(quality[metric]),
                _interval(quality[f"{metric}, worst skill"]),
                f"{100 * gap['mean']:+.1f} ({100 * gap['low']:+.1f} to {100 * gap['high']:+.1f})"
                if gap
                else "",
                "" if net is None else f"{net:+.0%}",
            ]
        )
    return (
        f"**Practice bank, {params['seeds']} seeds** (`cluster-cli compare`; accuracy to the letter on "
        "dev rows in percent, mean and standard deviation over seeds; the worst skill; difference to "
        "the random arm in points with its 95 % interval, paired over seeds):\n\n"
        + table(*rows)
        + "\nWhat the table says, sentence by sentence:\n\n"
        + "".join(f"* {sentence}\n" for sentence in result["verdicts"])
        + "\nTimes were taken on a machine busy with other work, so the net savings are rough.\n"
    )


def _interval(quality: Json) -> str:
    return f"{100 * quality['mean']:.1f} ± {100 * (quality['deviation'] or 0):.1f}"


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
