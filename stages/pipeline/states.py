"""Is an output what the stage would make now? If not, why not?"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from formats import artifacts
from formats.artifacts import Header
from formats.errors import ArtifactError, ArtifactMissingError, SettingError
from stages.pipeline.chain import LINKS, STAGES, Facts, Pipeline, Upstream

FRESH, STALE, INCOMPLETE, MISSING = "fresh", "stale", "incomplete", "missing"


@dataclass(frozen=True)
class State:
    """What became of one stage's output.

    Attributes:
        stage: its name; empty where nothing tells it.
        state: fresh; stale (would be made differently now); incomplete (a killed run can be gone on
            with); missing.
        output: the artifact.
        reasons: why it is not fresh, as ``field: old -> new`` or in words.
        key: the key it has, None without one.
        expected: the key it would get, None where that depends on a stage that has to run first.
        header: its header, when it is fresh.
    """

    stage: str
    state: str
    output: Path
    reasons: list[str] = field(default_factory=list)
    key: str | None = None
    expected: str | None = None
    header: Header | None = None

    @property
    def fresh(self) -> bool:
        """Nothing to do."""
        return self.state == FRESH

    def to_json(self) -> dict[str, Any]:
        """For programs; without the header."""
        names = ("stage", "state", "fresh", "reasons", "key", "expected")
        return {name: getattr(self, name) for name in names} | {"output": str(self.output)}

    def upstream(self) -> Upstream:
        """This stage as the next one sees it."""
        return Upstream(self.output, self.expected, self.header)


def status(pipeline: Pipeline, since: str | None = None, until: str | None = None) -> list[State]:
    """The state of every stage from ``since`` to ``until``, in order. Nothing is changed.

    Args:
        pipeline: the chain.
        since: take the stages before this one as they are.
        until: leave out the stages after this one.

    Raises:
        SettingError: the pipeline has no such stage, or ``since`` comes after ``until``.
        ArtifactError: the input of ``since`` is not there.
        DataError, ModelError: the data or a model cannot be found.
    """
    states: list[State] = []
    names = window(pipeline, since, until)
    before = accepted(pipeline, since)
    for name in names:
        states.append(judge(pipeline, name, before, states[-1] if states else None))
        before = states[-1].upstream()
    return states


def window(pipeline: Pipeline, since: str | None, until: str | None) -> list[str]:
    """The stages from ``since`` to ``until``, both included.

    Raises:
        SettingError: the pipeline has no such stage, or ``since`` comes after ``until``.
    """
    names = pipeline.stages
    for name in (since, until):
        if name is not None and name not in names:
            raise SettingError(
                f"this pipeline has no stage {name!r}", fix=f"its stages are {', '.join(names)}"
            )
    first = names.index(since) if since else 0
    last = names.index(until) if until else len(names) - 1
    if first > last:
        raise SettingError(f"{since} comes after {until}", fix="swap --from and --until")
    return names[first : last + 1]


def accepted(pipeline: Pipeline, since: str | None) -> Upstream | None:
    """The output of the stage before ``since``, whatever it was made from.

    Raises:
        ArtifactError: it is not there.
    """
    if since is None or since == STAGES[0]:
        return None
    name = STAGES[STAGES.index(since) - 1]
    output = pipeline.outputs[name]
    try:
        header = artifacts.read_header(output, LINKS[name].kind)
    except ArtifactMissingError as error:
        raise ArtifactMissingError(
            f"{error.problem}, and --from {since} begins with it", fix="leave --from out"
        ) from None
    return Upstream(output, header.key, header)


def judge(
    pipeline: Pipeline, name: str, before: Upstream | None, previous: State | None = None
) -> State:
    """The state of one stage, given what the stage before it made or will make.

    Args:
        before: the input; None for the first stage.
        previous: the state of the stage before, when it was judged too.
    """
    link, output = LINKS[name], pipeline.outputs[name]
    expected, facts = link.expect(pipeline, before)
    header, reasons, state = None, [], MISSING
    waits = previous is not None and not previous.fresh
    try:
        header = artifacts.read_header(output, link.kind)
    except ArtifactMissingError:
        pass
    except ArtifactError as error:
        state, reasons = STALE, [error.problem]
    if header is not None and header.key == expected:
        return State(name, FRESH, output, [], header.key, expected, header)
    if header is not None:
        state = STALE
        reasons = list(_differences(link.recorded(header), facts, before if waits else None))
    if waits and previous is not None:
        reasons.append(
            f"{previous.stage} will run again" if header else f"{previous.stage} will run"
        )
    if header is not None and not reasons:
        reasons = ["made from something else, or by another version of the stage"]
    done = _progress(name, output, expected)
    if state == MISSING and not reasons and not done.notes:
        reasons = ["not made yet"]
    if done.resumable:
        state = INCOMPLETE
    return State(
        name, state, output, [*done.notes, *reasons], header.key if header else None, expected
    )


def _differences(old: Facts, new: Facts, unsettled: Upstream | None) -> Iterator[str]:
    """``field: old -> new`` for every difference; an input that will be made anew is not compared."""
    for name in {**old.params, **new.params}:
        yield from _difference(name, old.params, new.params)
    for name in {**old.inputs, **new.inputs}:
        if unsettled is None or name != unsettled.path.name:
            yield from _difference(name, old.inputs, new.inputs)


def _difference(name: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    # What an older version did not know is as good as what is not set.
    before, now = old.get(name), new.get(name)
    if _plain(before) != _plain(now):
        yield difference(name, before, now)


def difference(name: str, old: Any, new: Any) -> str:
    """``field: old -> new``."""
    return f"{name}: {_shown(old)} -> {_shown(new)}"


def _plain(value: Any) -> Any:
    """As JSON gives it back, so that tuples equal the lists they were stored as."""
    return json.loads(json.dumps(value))


def _shown(value: Any) -> str:
    if value is None:
        return "none"
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= 60 else text[:57] + "..."


@dataclass(frozen=True)
class _Progress:
    resumable: bool = False
    notes: tuple[str, ...] = ()


def _progress(name: str, output: Path, expected: str | None) -> _Progress:
    """What a killed run left in ``<output>.partial``, where the stage can go on with it."""
    half = artifacts.partial(output)
    found = half_done(half) if name in ("score", "train") else None
    if found is None:
        return _Progress()
    key, note = found
    if key == expected:
        return _Progress(True, (note,))
    return _Progress(False, (f"{half.name} has {note} of other settings; only --force drops it",))


def half_done(half: Path) -> tuple[str, str] | None:
    """The key of what a killed run left to go on with, and how far it came; None when there is nothing."""
    if not half.is_dir():
        return None
    return _scored(half) if (half / "zarr.json").exists() else _trained(half)


def _scored(half: Path) -> tuple[str, str] | None:
    """The key of half-done signatures, and how many of their blocks are there."""
    import numpy as np

    from formats import blocks
    from formats.signatures import PENDING

    try:
        group = blocks.open_arrays(half, whole=False)
        key, status = str(group.attrs["partial_key"]), group["status"]
    except (ArtifactError, KeyError):  # killed before it had one: nothing to go on with
        return None
    pending, size = np.asarray(status[:]) == PENDING, status.chunks[0]
    starts = range(0, len(pending), size)
    done = sum(not pending[start : start + size].any() for start in starts)
    return (key, f"{done:,} of {len(starts):,} blocks") if done else None


def _trained(half: Path) -> tuple[str, str] | None:
    """The key of a stopped training, and its newest checkpoint."""
    from stages.train import checkpoints
    from stages.train.settings import FILE, Settings

    found = checkpoints.found(half)
    if not found or not (half / FILE).is_file():
        return None
    return Settings.read(half).key, f"a checkpoint at step {checkpoints.step_of(found[-1])}"


def keys(pipeline: Pipeline) -> dict[str, str]:
    """A key for every stage from settings, data and models alone, whether or not anything was made.

    Made for caches: equal keys, equal outputs. For score, cluster and select it is the output's own key.
    The keys of an allocation and a run also cover the selected lines, which are not known before they are
    chosen (and could be edited by hand), so theirs differ from these.

    Raises:
        DataError, ModelError: the data or a model cannot be found.
    """
    found: dict[str, str] = {}
    before: Upstream | None = None
    for name in pipeline.stages:
        key, _ = LINKS[name].expect(pipeline, before)
        assert key is not None
        found[name] = key
        before = Upstream(pipeline.outputs[name], key, imagined=True)
    return found
