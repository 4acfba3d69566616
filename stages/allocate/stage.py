"""The allocate stage: selection in, one file of micro-batches per rank out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from formats import artifacts
from formats.artifacts import Header
from formats.errors import ArtifactError, SettingError
from formats.places import local, place, relative
from formats.selection import Selection, content_hash, read_selection
from stages.allocate.deal import Deal
from stages.allocate.shape import Shape
from stages.allocate.strategies import plan
from stages.allocate.telling import report, statistics, warn
from stages.allocate.vectors import load
from stages.allocate.writing import write_ranks
from stages.reporting import Reporter, Silent

STAGE_VERSION = 2
_REVISIONS = {"balanced": 2}  # of single strategies: only their plans have to be made again
MOST_RANKS = 4096


def allocate(
    selection: Path,
    output: Path,
    *,
    ranks: int,
    strategy: str = "disjoint",
    micro_batch: int = 1,
    accumulation: int = 1,
    epochs: int = 1,
    seed: int = 0,
    rotate: bool = False,
    max_tokens_per_micro_batch: int | None = None,
    signatures: Path | None = None,
    force: bool = False,
    reporter: Reporter = Silent(),
) -> Header:
    """Plans which rank takes which example at which step, for the whole run.

    Every example is taken exactly once per epoch, and every rank has the same number of micro-batches.
    The order is another one in each epoch.

    Args:
        selection: a ``selection.jsonl``.
        output: the folder to write.
        ranks: data-parallel workers, 1 to 4096.
        strategy: one of ``stages.allocate.strategies.STRATEGIES``.
        micro_batch: rows a rank takes through the model at once.
        accumulation: micro-batches per optimizer step.
        epochs: passes over the selection.
        seed: other seeds, other plans.
        rotate: move clusters on to the next rank from epoch to epoch.
        max_tokens_per_micro_batch: instead of ``micro_batch`` rows, as many as have at most so many
            tokens, padding included. A longer row has a micro-batch of its own.
        signatures: the ``signatures.zarr`` behind the selection. With it the plan is also measured in
            signature space; ``balanced`` finds it by itself unless it was moved.
        force: do it again even when the output is up to date.
        reporter: where messages go.

    Returns:
        The manifest. ``stats["plan"]`` and ``stats["random"]`` hold the figures of
        ``stages.allocate.report`` for the first epoch and for the usual shuffle of the same examples.

    Raises:
        SettingError: a number is out of range, or there is no such strategy, or rows and tokens of a
            micro-batch are both given.
        ArtifactError: the selection cannot be read, or is empty.
        OutputBusyError: another process is writing the output.
    """
    selection, output = place(selection), local(output)
    _check(ranks, micro_batch, accumulation, epochs, max_tokens_per_micro_batch)
    source = artifacts.read_header(selection, "selection")
    content = [source.key, content_hash(selection)]
    params, key = expected(
        content,
        ranks=ranks,
        strategy=strategy,
        micro_batch=micro_batch,
        accumulation=accumulation,
        epochs=epochs,
        seed=seed,
        rotate=rotate,
        max_tokens_per_micro_batch=max_tokens_per_micro_batch,
        measured=signatures is not None,
    )
    budget = max_tokens_per_micro_batch or 0
    with artifacts.locked(output):
        if not force and (fresh := artifacts.fresh_header(output, "allocation", key)):
            artifacts.touch(output, "allocation")
            reporter.message(f"{output} is up to date")
            return fresh
        chosen = read_selection(selection)
        if not len(chosen):
            raise ArtifactError(f"{selection} holds no example: nothing to allocate")
        shape = Shape(len(chosen), ranks, micro_batch, accumulation)
        known = load(chosen, signatures) if signatures or strategy == "balanced" else None
        deals = []
        made = plan(
            chosen,
            shape,
            strategy,
            epochs=epochs,
            seed=seed,
            rotate=rotate,
            vectors=known,
            budget=budget,
        )
        with reporter.progress("plan", epochs, "epochs") as advance:
            for deal in made:
                deals.append(deal)
                advance(1)
        stats = statistics(chosen, shape, deals, budget, seed, known)
        report(stats, shape, reporter)
        warn(stats, chosen, shape, strategy, budget, reporter)
        files = write_ranks(artifacts.fresh_partial(output), chosen, deals, reporter)
        header = _header(chosen, output, key, params, stats, shape, deals, content[1])
        header.extra["files"] = files
        artifacts.write_json(artifacts.partial(output) / "manifest.json", header.to_json())
        artifacts.commit(output)
    return header


def expected(
    content: list[str],
    *,
    ranks: int,
    strategy: str = "disjoint",
    micro_batch: int = 1,
    accumulation: int = 1,
    epochs: int = 1,
    seed: int = 0,
    rotate: bool = False,
    max_tokens_per_micro_batch: int | None = None,
    measured: bool = False,
) -> tuple[dict[str, Any], str]:
    """The parameters and the key of the plan ``allocate`` would write, without reading anything.

    Args:
        content: the selection's key and the hash of its lines (``formats.selection.content_hash``).
        ranks, strategy, micro_batch, accumulation, epochs, seed, rotate, max_tokens_per_micro_batch:
            as in ``allocate``.
        measured: whether ``signatures`` is given.

    Raises:
        SettingError: a number is out of range, or two contradict each other.
    """
    _check(ranks, micro_batch, accumulation, epochs, max_tokens_per_micro_batch)
    params = {
        "strategy": strategy,
        "ranks": ranks,
        "micro_batch": micro_batch,
        "accumulation": accumulation,
        "epochs": epochs,
        "seed": seed,
        "rotate": rotate,
    }
    if max_tokens_per_micro_batch is not None:
        params["max_tokens_per_micro_batch"] = max_tokens_per_micro_batch
    if measured:
        params["measured"] = True
    revised = {"revision": _REVISIONS[strategy]} if strategy in _REVISIONS else {}
    key = artifacts.stage_key("allocate", STAGE_VERSION, params=params | revised, inputs=content)
    return params, key


def _check(
    ranks: int, micro_batch: int, accumulation: int, epochs: int, max_tokens: int | None
) -> None:
    if not 1 <= ranks <= MOST_RANKS:
        raise SettingError(f"--ranks is {ranks}", fix=f"give a number from 1 to {MOST_RANKS}")
    numbers = {
        "micro-batch": micro_batch,
        "accumulation": accumulation,
        "epochs": epochs,
        "max-tokens-per-micro-batch": 1 if max_tokens is None else max_tokens,
    }
    for name, value in numbers.items():
        if value < 1:
            raise SettingError(f"--{name} is {value}", fix="give a positive number")
    if max_tokens is not None and micro_batch > 1:
        raise SettingError(
            f"--micro-batch {micro_batch} says how many rows a micro-batch has, "
            f"--max-tokens-per-micro-batch {max_tokens} how many tokens",
            fix="leave one of them out",
        )


def _header(
    chosen: Selection,
    output: Path,
    key: str,
    params: dict[str, Any],
    stats: dict[str, Any],
    shape: Shape,
    deals: list[Deal],
    content: str,
) -> Header:
    path, folder, extra = chosen.path, output.parent, chosen.header.extra
    return Header(
        kind="allocation",
        key=key,
        params=params,
        inputs=[{"path": relative(path, folder), "sha256": content, "rows": len(chosen)}],
        stats=stats,
        dataset=artifacts.rebase_dataset(chosen.header.dataset, path.parent, folder),
        extra={
            "ranks": shape.ranks,
            "accumulation": shape.accumulation,
            "epochs": params["epochs"],
            **_size(deals, shape),
            **{name: extra[name] for name in ("space", "space_id", "rendering") if name in extra},
        },
    )


def _size(deals: list[Deal], shape: Shape) -> dict[str, Any]:
    """Steps of an epoch and rows of a micro-batch, as ``formats.allocation.Allocation`` reads them."""
    steps = deals[0].rows.shape[0]
    if deals[0].batch:
        return {"micro_batch": shape.micro_batch, "steps_per_epoch": steps}
    return {
        "micro_batch": max(1, round(shape.examples / deals[0].rows.size)),
        "most_rows": max(int(deal.rows.max()) for deal in deals),
        "batch": shape.examples / steps,
        "steps_per_epoch": steps,
    }
