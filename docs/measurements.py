"""``docs/measurements.md``: everything that was measured, from the JSON files in ``docs/results``."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import fmean
from typing import Any

RESULTS = Path(__file__).resolve().parent / "results"
Json = dict[str, Any]


def read(name: str) -> Json:
    """One committed measurement."""
    found: Json = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return found


def table(*rows: list[str]) -> str:
    """A Markdown table; the first row is its head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def spread(values: list[float], digits: int = 2) -> str:
    """Lowest to highest; one figure where both are the same."""
    low, high = (f"{round(x, digits) + 0:.{digits}f}" for x in (min(values), max(values)))
    return low if low == high else f"{low} to {high}"


def page() -> str:
    """The whole page."""
    parts = [_fidelity(), _frontier(), _speed(), _lessons(), _joining()]
    for name, make in _FURTHER.items():
        if (RESULTS / f"{name}.json").exists():
            parts.append(make(read(name)))
    return "# Measurements\n\n" + "\n".join(parts)


def _fidelity() -> str:
    found = read("fidelity")
    rows = [["signature", "numbers", "all pairs", "within a source", "neighbours", "cost"]]
    for line in found["results"]:
        figures = (line["correlation"], line["within_source"], line["neighbours"])
        rows.append(
            [
                line["signature"],
                f"{line['numbers']:,}" if line["numbers"] else "",
                *(f"{x:.2f}" for x in figures),
                spread(line["cost"]) if "cost" in line else "",
            ]
        )
    return (
        "## How faithful is a signature?\n\n"
        f"SmolLM2-135M, {found['rows']} rows of {', '.join(found['sources'])}, at most "
        f"{found['length']} tokens. Rank correlation of all pairwise cosines with those of exact "
        "gradients (every linear layer to rank 256, unsketched); recall of the ten nearest neighbours; "
        "processor time of one thread as a fraction of a training step's on the same rows (forward, "
        "backward with weight gradients, AdamW). Several settings were tried and are no part of the "
        "product: truncated or sampled responses, a straight-through head gradient, a model cut to its "
        "first layers.\n\n"
        + table(*rows)
        + "\nReproduce: `python tests/benchmarks/fidelity.py GSM8K CODE MEDQUAD --model SMOLLM2 "
        "--proxy STORIES -o fidelity.json`.\n"
    )


def _frontier() -> str:
    costed = [line for line in read("fidelity")["results"] if "cost" in line]
    costed.sort(key=lambda line: fmean(line["cost"]))
    rows = [["setting", "cost of scoring", "within a source", "net saving, 1 epoch", "3 epochs"]]
    best = 0.0
    for line in costed:
        cost = fmean(line["cost"])
        leads = line["within_source"] > best
        best = max(best, line["within_source"])
        name = f"**{line['signature']}**" if leads else line["signature"]
        net = [f"{1 - 0.31 - cost / epochs:+.0%}" for epochs in (1, 3)]
        rows.append([name, f"{cost:.2f}", f"{line['within_source']:.2f}", *net])
    return (
        "## The net-saving frontier\n\n"
        "What scoring leaves of the saving: training on 31 % of the rows saves 69 % of an epoch's steps, "
        "and scoring costs its fraction of one epoch, once. In bold: nothing cheaper is as faithful.\n\n"
        "![Fidelity against cost](results/frontier.svg)\n\n" + table(*rows)
    )


def _speed() -> str:
    found = read("speed")
    rows = [["signature", "numbers", "tokens per second", "time, ours = 1", "within a source"]]
    for line in found["results"]:
        rows.append(
            [
                line["signature"],
                f"{line['numbers']:,}",
                spread(line["tokens_per_second"], 1),
                spread(line["slower_than_ours"]),
                f"{line['within_source']:.2f}",
            ]
        )
    return (
        "## Beside other ways to get signatures\n\n"
        f"SmolLM2-135M, {found['rows']} rows, {found['tokens']:,} tokens, one thread, processor time, "
        "alternating in one run. One at a time is the recipe of LESS written plainly: a LoRA backward "
        "pass per example and a dense projection to 8,192 numbers; rank 128 is as published. Fidelity "
        "here is of few rows; see the table above.\n\n"
        + table(*rows)
        + "\nReproduce: `python tests/benchmarks/speed.py GSM8K CODE MEDQUAD --model SMOLLM2 --bergson "
        "PYTHON -o speed.json`.\n"
    )


_TABLES = {
    "lessons_svamp": ("Word problems", "the story model", "mutual_information"),
    "lessons_bank": ("Practice bank", "the demo's base model", "adjusted_rand"),
    "lessons_medquad": ("MedQuAD", "SmolLM2-135M", "mutual_information"),
}


def _lessons() -> str:
    parts = [
        "## Do clusters follow lessons?\n\n"
        "Agreement of k-means clusters with what is known of the rows: mean over seeds of projection, "
        "warm-up and k-means together (lowest to highest where there are several), with the mean "
        "direction left in and taken out. In the word problems the lesson is the equation; in the bank "
        "it is the skill, and the topic is what clusters should not follow; in MedQuAD we know the type "
        "of question only.\n\n"
        "What it says: the bank's topics are not followed by any signature, and a text's topic says little "
        "about equations. On both the forward-only head finds lessons at least as well as the full "
        "gradient, whose geometry it follows poorly. A warm-up, an optimizer's geometry "
        "and a higher rank change little here; taking the mean direction out costs a little on the word "
        "problems and makes no difference on the bank. On the bank, plain TF-IDF finds the skills better "
        "than any signature: its tasks are told by their wording, so it shows that clusters are not "
        "topics, not that gradients are needed. The same holds for MedQuAD, whose questions are templates: "
        "their type is found best by text.\n"
    ]
    for name, (title, model, metric) in _TABLES.items():
        if (RESULTS / f"{name}.json").exists():
            parts.append(_lesson_table(read(name), title, model, metric))
    return "\n".join(parts)


def _plain(label: str) -> str:
    return label.replace("operators:", "operators of ")


def _lesson_table(found: Json, title: str, model: str, metric: str) -> str:
    labels = list(found["classes"])
    head = [f"{_plain(label)}, {centre}" for label in labels for centre in ("in", "out")]
    by_name: dict[str, dict[bool | None, list[Json]]] = {}
    for line in found["results"]:
        by_name.setdefault(line["signature"], {})[line["centred"]] = line["by_seed"]
    rows = [["signature", *head]]
    for name, ways in by_name.items():
        seeds = [ways.get(centred) or ways[None] for _ in labels for centred in (False, True)]
        cells = [
            _cell([seed[label][metric] for seed in by_seed])
            for label, by_seed in zip([x for x in labels for _ in (0, 1)], seeds, strict=True)
        ]
        rows.append([name, *cells])
    classes = ", ".join(f"{count} {_plain(label)}" for label, count in found["classes"].items())
    return (
        f"**{title}**, {found['rows']:,} rows, {model}, {found['results'][0]['clusters']} clusters, "
        f"{found['seeds']} seed(s), {_NAMES[metric]}; classes: {classes}.\n\n" + table(*rows)
    )


_NAMES = {
    "mutual_information": "normalised mutual information",
    "adjusted_rand": "adjusted Rand index",
}


def _cell(values: list[float]) -> str:
    text = f"{round(fmean(values), 2) + 0:.2f}"
    return f"{text} ({spread(values)})" if len(values) > 1 and spread(values) != text else text


def _joining() -> str:
    rows = [["data, known lessons", "rows", "signature", "K", "k-means", "joined"]]
    for name, title in _JOINED.items():
        if not (RESULTS / f"joining_{name}.json").exists():
            continue
        found = read(f"joining_{name}")
        lines = [line for line in found["results"] if line["centred"]]
        for label in found["classes"]:
            for kind in dict.fromkeys(line["signature"] for line in lines):
                for asked in dict.fromkeys(line["asked"] for line in lines):
                    rows.append(_joined_row(lines, label, kind, asked, title, f"{found['rows']:,}"))
    auto = read("auto_clusters")
    planted = [trial["agreement"] for scene in auto["results"] for trial in scene["trials"]]
    mean = {name: fmean(each[name] for each in planted) for name in ("auto", "planted", "k-means")}
    return (
        "## Joined clusters or k-means?\n\n"
        "Adjusted Rand index of clusters with lessons that a column of the data names, over three seeds: "
        "k-means with four starts, and clusters joined from a finer map, as `cluster` makes them. Text "
        "goes through the same two. `auto` is the number that `cluster` finds by itself.\n\n"
        + table(*rows)
        + f"\nOn {len(auto['results'])} kinds of planted lessons (few and many, unequal, diffuse, in "
        f"families; {auto['seeds']} seeds): {mean['planted']:.2f} with the "
        f"planted number, {mean['auto']:.2f} with the number that `auto` finds, {mean['k-means']:.2f} by "
        "k-means with the planted number.\n\nReproduce: `python tests/benchmarks/joining.py "
        "signatures.zarr --label COLUMN -o joining.json`, `python tests/benchmarks/auto_clusters.py`.\n"
    )


_JOINED = {
    "svamp": "word problems",
    "bank": "practice bank",
    "medquad": "MedQuAD",
}


def _joined_row(
    lines: list[Json], label: str, kind: str, asked: int | str, title: str, rows: str
) -> list[str]:
    of = [x for x in lines if x["signature"] == kind and x["asked"] == asked]
    numbers = sorted({x["clusters"] for x in of})
    shown = str(asked) if asked != "auto" else f"auto: {numbers[0]}"
    if asked == "auto" and len(numbers) > 1:
        shown += f" to {numbers[-1]}"
    values = [
        [x["adjusted_rand"][label] for x in of if x["fit"] == fit] for fit in ("k-means", "joined")
    ]
    return [f"{title}, {_plain(label)}", rows, kind, shown, *map(spread, values)]


def _reuse(found: Json) -> str:
    rows = [["clusters", "reused", "fitted again, another seed", "fit on both, s", "reuse, s"]]
    for line in found["trials"]:
        rows.append(
            [
                f"{line['clusters']} ({line['asked']})",
                *(f"{line[way]['adjusted_rand']:.2f}" for way in ("reused", "refitted")),
                *(f"{line['seconds'][part]:.1f}" for part in ("fit_both", "reuse")),
            ]
        )
    return (
        "## An old map on new data\n\n"
        f"{found['rows']:,} rows of MedQuAD scored with the story model, split into halves by content: the "
        "first is mapped, the second assigned with `--reuse`, and compared with a map fitted on both, on "
        "the rows of the second half (adjusted Rand index). Two fits of the same data with different "
        "seeds do not agree perfectly either; that is what can be hoped for.\n\n" + table(*rows)
    )


def _incremental(found: Json) -> str:
    change = found["changed_file"]
    computed = change["stats"]["rows"] - change["stats"]["reused"]
    rows = [["rows", "seconds", "peak memory, MiB"]]
    rows += [[f"{m['rows']:,}", str(m["seconds"]), f"{m['peak_mib']:,}"] for m in found["memory"]]
    few, many = (m["peak_mib"] for m in (found["memory"][0], found["memory"][-1]))
    same = "identical to the bit" if change["untouched_rows_identical"] else "NOT identical"
    return (
        "## Changed files and many rows\n\n"
        f"{change['rows']:,} rows of {found['data']} scored with {found['model']} (at most "
        f"{found['length']} tokens) in {change['first']['seconds']} s; {change['replaced']:,} replaced "
        f"and {change['added']:,} added: {computed:,} computed, {change['stats']['reused']:,} copied, in "
        f"{change['again']['seconds']} s; every untouched row {same}.\n\n"
        + table(*rows)
        + f"\nPeak memory grows by {many / few - 1:.1%} from the first to the last.\n\n"
        "Reproduce: `python tests/benchmarks/incremental.py MEDQUAD.jsonl --model STORIES -o "
        "incremental.json`.\n"
    )


def _scale(found: Json) -> str:
    rows = [
        ["rows", "cluster, s", "peak, GiB", "select, s", "peak, GiB", "agreement with the lessons"]
    ]
    for line in found["results"]:
        rows.append(
            [
                f"{line['rows']:,}",
                f"{line['cluster']['seconds']:,.0f}",
                f"{line['cluster']['peak_gib']:.2f}",
                f"{line['select']['seconds']:.1f}",
                f"{line['select']['peak_gib']:.2f}",
                f"{line['agreement']:.2f}",
            ]
        )
    return (
        "## Many rows: cluster and select\n\n"
        f"Synthetic signatures of {found['clusters']:,} planted lessons in noise, {found['dims']:,} "
        f"numbers each, {found['clusters']:,} clusters, {found['cores']} cores; wall seconds and peak "
        "resident memory of the real commands; adjusted Rand index with the planted lessons.\n\n"
        + table(*rows)
        + "\nReproduce: `python tests/benchmarks/scale.py --rows 10000 100000 1000000 -o scale.json`.\n"
    )


def _allocation(found: Json) -> str:
    rows = [["rows", "ranks", "seconds", "peak, GiB"]]
    for line in found["results"]:
        rows.append(
            [
                f"{line['rows']:,}",
                f"{found['ranks']:,}",
                f"{line['seconds']:,.0f}",
                f"{line['peak_gib']:.2f}",
            ]
        )
    return (
        "## Many rows: allocate\n\nThe default strategy on a synthetic selection, the real command.\n\n"
        + table(*rows)
    )


def _gradient_quality(found: Json) -> str:
    parts = [
        _followed("the practice bank", found),
        _followed("word problems", read("gradient_quality_words")),
        _followed("MedQuAD, a story model", read("gradient_quality_medquad")),
    ]
    return (
        "## How well does a step follow the full gradient, and does it matter?\n\n"
        "Variance of the step's weighted gradient around the whole selection's, random order = 1. Exact "
        "gradients and signatures agree. Keeping clusters apart and matching lengths makes a large step "
        "*less* like the whole than a plain shuffle does; `--strategy balanced` makes it much more like "
        "it. Does it train better? The race: steps until the weighted loss of the selection reaches the "
        "one at which the worst of the random orders ends. With every seed `balanced` gets there a fifth "
        "sooner on the word problems and a thirtieth on MedQuAD; on the bank, where all losses are near "
        "zero by then, it gets there as soon as the random orders and ends above them, as `disjoint` does. "
        "What the order alone is worth on dev rows stands [below](#comparisons-sentence-by-sentence). It "
        "needs the signatures of all selected rows, where the others need none, so it is an option and not "
        "the default.\n\n"
        + "\n".join(parts)
        + "\n"
        + _between_ranks(read("ranks_medquad_1"), read("ranks_medquad_4"))
        + "\n"
        + _lengths(read("lengths_medquad"))
    )


def _followed(what: str, found: Json) -> str:
    """Variances and the race of one selection."""
    spaces = {"signatures": "signatures", "exact": "exact gradients"}
    batches = sorted({line["batch"] for line in found["exact"]})
    head = ["strategy", *(f"{spaces[s]}, {b} rows" for s in spaces for b in batches)]
    raced = found["training"]
    head += [f"steps to a loss of {raced['target']:.4f}, by seed", "loss at the end, by seed"]
    value = {(s, x["strategy"], x["batch"]): x["by_seed"] for s in spaces for x in found[s]}
    rows = [head]
    for line in raced["results"]:
        strategy = line["strategy"]
        cells = [f"{fmean(value[s, strategy, b]):.2f}" for s in spaces for b in batches]
        steps = ", ".join("never" if x is None else f"{x:.0f}" for x in line["steps"])
        ends = ", ".join(f"{curve[-1][1]:.4f}" for curve in line["curves"])
        rows.append([strategy, *cells, steps, ends])
    of = f" of {raced['rows']} rows" if "rows" in raced else ""
    return (
        f"**{what[0].upper()}{what[1:]}**, {found['rows']} selected rows, {found['ranks']} ranks, "
        f"accumulation {found['accumulation']}, mean over {len(found['exact'][0]['by_seed'])} plans; the "
        f"race{of} at batch {raced['batch']} over {raced['epochs']} epochs:\n\n{table(*rows)}"
    )


def _between_ranks(*found: Json) -> str:
    """What ranks have in common in a step."""
    head = ["accumulation", "ranks", "strategy", "share a cluster", "cosine of their means"]
    rows = [[*head, "fullest over mean", "padding", "variance of a step"]]
    for of in found:
        chance = {
            line["ranks"]: fmean(line["batch_variance"])
            for line in of["between_ranks"]
            if line["strategy"] == "random"
        }
        for line in of["between_ranks"]:
            cosines = line["rank_cosine"]
            rows.append(
                [
                    str(of["accumulation"]),
                    str(line["ranks"]),
                    line["strategy"],
                    f"{fmean(line['shared_cluster']):.2f}",
                    f"{fmean(cosines):+.3f} ({min(cosines):+.3f} to {max(cosines):+.3f})",
                    f"{fmean(line['padded_ratio_mean']):.3f}",
                    f"{fmean(line['padding']):.1%}",
                    f"{fmean(line['batch_variance']) / chance[line['ranks']]:.2f}",
                ]
            )
    one = found[0]
    plans = len(one["between_ranks"][0]["rank_cosine"])
    return (
        "## What two ranks have in common in a step\n\n"
        f"The selected 31 % of MedQuAD, {one['rows']:,} rows of {one['clusters']} clusters, at most 512 "
        f"tokens of SmolLM2, micro-batch 4, {plans} plans each: the chance that two ranks hold the same "
        "cluster; the cosine between their mean signatures, what all rows share aside, with its range; "
        "the padded tokens of the fullest rank over the mean; the share of tokens that is padding; and "
        "the variance of a step's mean signature around the whole's, random = 1. With one micro-batch a "
        "step all its rows have one length, and rows of one length teach alike: there a step resembles "
        "the whole less than a shuffle's, unless exchanges make up for it.\n\n"
        + table(*rows)
        + "\nReproduce: `cluster-cli score medquad/train.jsonl -m SMOLLM2 --proxy STORIES --kind head "
        "--max-length 512 -o signatures.zarr`, `cluster` and `select --fraction 0.31`, then `python "
        "tests/benchmarks/gradient_quality.py selection.jsonl --model STORIES --accumulation 4 --seeds 3 "
        "--no-exact --no-train -o ranks.json`.\n"
    )


def _lengths(found: Json) -> str:
    """Whether steps of one length train worse."""
    rows = [["strategy", "micro-batches a step", "loss of the selection at the end, by seed"]]
    for line in found["results"]:
        of = "any" if line["strategy"] == "random" else str(line["accumulation"])
        rows.append([line["strategy"], of, ", ".join(f"{c[-1]:.3f}" for c in line["losses"])])
    return (
        f"Does it train worse? {found['rows']} rows of MedQuAD, 78 to 512 tokens of a story model, three "
        f"in ten of them cut there, {found['ranks']} ranks, {found['batch']} rows a "
        f"step, {found['epochs']} epochs, equal steps for all:\n\n"
        + table(*rows)
        + "\nReproduce: `gradient_quality.py` as above with `--accumulation 1` and `4`, `--batches 32 "
        "--no-exact --train-seeds 2 --epochs 4 --every 16 --eval-rows 496`.\n"
    )


_FURTHER = {
    "reuse": _reuse,
    "incremental": _incremental,
    "scale": _scale,
    "allocation": _allocation,
    "gradient_quality": _gradient_quality,
}


def plot_frontier() -> None:
    """``docs/results/frontier.svg``: fidelity against cost. Needs matplotlib."""
    import matplotlib

    matplotlib.use("svg")
    import matplotlib.pyplot as plt

    plt.rcParams.update({"svg.hashsalt": "frontier", "font.size": 9, "font.family": "sans-serif"})
    lines = [line for line in read("fidelity")["results"] if "cost" in line]
    lines.sort(key=lambda line: fmean(line["cost"]))
    figure, axes = plt.subplots(figsize=(9, 4.8))
    for number, line in enumerate(lines, 1):
        place = (fmean(line["cost"]), line["within_source"])
        colour = "#d55e00" if "default" in line["signature"] else "#0072b2"
        axes.plot(*place, "o", color=colour, ms=5, label=f"{number}  {line['signature']}")
        side = (6, -3) if number % 2 else (-6, -3)
        axes.annotate(
            str(number),
            place,
            xytext=side,
            textcoords="offset points",
            ha="left" if number % 2 else "right",
            color=colour,
            fontsize=8,
        )
    axes.legend(loc="center left", bbox_to_anchor=(1.02, 0.5), frameon=False, handlelength=0)
    axes.set_xlabel("cost of scoring one row, as a fraction of a training step")
    axes.set_ylabel("rank correlation with exact gradients, within a source")
    axes.set_xlim(left=0)
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    figure.tight_layout()
    figure.savefig(RESULTS / "frontier.svg", metadata={"Date": None})


if __name__ == "__main__":
    plot_frontier()
