"""The links of the chain: what each stage needs to be told, compared and called."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from formats.artifacts import Header, read_header, stamp
from formats.data import find_sources
from formats.fingerprints import digest, file_sha256
from formats.selection import content_hash
from stages import allocate, cluster, score, select, train
from stages.models import ModelFiles, find_model
from stages.score.settings import Job
from stages.score.stage import Target

STAGES = ("score", "cluster", "select", "allocate", "train")

FUNCTIONS: dict[str, Callable[..., Header]] = {
    "score": score.score,
    "cluster": cluster.cluster,
    "select": select.select,
    "allocate": allocate.allocate,
    "train": train.train,
}

# Stands for the lines of a selection that has not been made; see ``states.keys``.
UNSEEN = "as selected"
NO_MODEL = ModelFiles("", Path(), None, "", "")


@dataclass(frozen=True)
class Pipeline:
    """What to run and where to.

    Attributes:
        arguments: by stage, the keyword arguments of its function (``stages.score.score`` and so on)
            without inputs from other stages, ``output``, ``force`` and ``reporter``. Stages may be
            missing at the end of the chain.
        outputs: by stage, the artifact to write.
    """

    arguments: Mapping[str, Mapping[str, Any]]
    outputs: Mapping[str, Path]

    @property
    def stages(self) -> list[str]:
        """The stages of this pipeline, in order."""
        return [name for name in STAGES if name in self.arguments]


@dataclass(frozen=True)
class Upstream:
    """What the stage before has made, or will make.

    Attributes:
        path: its output.
        key: the output's key, None where that cannot be known before it is made.
        header: its header when the output is there with this key, else None.
        imagined: nothing on disk is looked at, see ``states.keys``.
    """

    path: Path
    key: str | None
    header: Header | None = None
    imagined: bool = False


@dataclass(frozen=True)
class Facts:
    """What a result depends on: ``params``, and short content hashes of the ``inputs`` by name."""

    params: dict[str, Any]
    inputs: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Link:
    """One stage as the pipeline sees it.

    Attributes:
        kind: of its artifact, see ``formats.artifacts.HEADERS``.
        name: its output's usual file name.
        expect: from the pipeline and the stage before to the key of an up-to-date output, None when
            it cannot be known yet, and the facts behind it. Computes nothing heavy.
        recorded: the same facts, as the header of an output has them.
        call: runs the stage on (arguments, path of the input, output, ``force`` and ``reporter``).
    """

    kind: str
    name: str
    expect: Callable[[Pipeline, Upstream | None], tuple[str | None, Facts]]
    recorded: Callable[[Header], Facts]
    call: Callable[..., Header]


def short(content: object) -> str:
    """The first digits of a hash, enough to tell two apart."""
    return str(content)[:12]


def arguments_of(function: Callable[..., Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Those of the arguments that the function has."""
    names = inspect.signature(function).parameters
    return {name: value for name, value in given.items() if name in names}


def _inputs(header: Header) -> dict[str, str]:
    """The artifacts a stage has read, as its header records them."""
    return {Path(item["path"]).name: short(item["sha256"]) for item in header.inputs}


def score_job(given: Mapping[str, Any]) -> Job:
    """The job that ``score`` makes of its arguments.

    Raises:
        SettingError: they contradict each other.
    """
    defaults = {
        name: p.default for name, p in inspect.signature(FUNCTIONS["score"]).parameters.items()
    }
    values = {**defaults, "output": Path(), **given}
    job = Job(**{item.name: values[item.name] for item in fields(Job)})
    job.check()
    return job


def _expect_score(pipeline: Pipeline, _: Upstream | None) -> tuple[str | None, Facts]:
    job = score_job(pipeline.arguments["score"])
    sources = find_sources(job.data, job.options)
    target = Target.of(job)
    params = {**asdict(job.settings), **job.options.to_json(), "proxy": job.proxy}
    inputs = {path: short(content) for path, content in sources}
    return target.key, _score_facts(params, inputs, target.space)


def _recorded_score(header: Header) -> Facts:
    params = {name: value for name, value in header.params.items() if name != "model"}
    inputs = {item["path"]: short(item["sha256"]) for item in header.inputs}
    options = header.dataset.get("options", {})
    return _score_facts({**params, **options}, inputs, header.extra.get("space", {}))


def _score_facts(params: dict[str, Any], inputs: dict[str, str], space: dict[str, Any]) -> Facts:
    template = params.get("chat_template")
    shown = {**params, "chat_template": short(digest(template)) if template else None}
    hashes = {name: space[name] for name in ("model", "tokenizer") if name in space}
    for name, value in hashes.items():  # a trajectory has a list of them
        inputs = {**inputs, name: short(value if isinstance(value, str) else digest(value))}
    return Facts(shown, inputs)


def _call_score(given: Mapping[str, Any], _: Path | None, output: Path, **how: Any) -> Header:
    return FUNCTIONS["score"](output=output, **given, **how)


def _expect_cluster(pipeline: Pipeline, before: Upstream | None) -> tuple[str | None, Facts]:
    assert before is not None
    given = cluster_expected(pipeline.arguments["cluster"])
    params, key = cluster.expected(before.key or "", _dims(pipeline, before), **given)
    inputs = {before.path.name: short(before.key)}
    if given["reuse"] is not None:
        inputs[Path(pipeline.arguments["cluster"]["reuse"]).name] = short(given["reuse"].key)
    return key if before.key else None, Facts(params, inputs)


def cluster_expected(given: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of ``cluster.expected``: those of ``cluster``, the older map's header read.

    Raises:
        ArtifactError: the older map is not there.
    """
    older = given.get("reuse")
    header = read_header(older, "clusters") if older else None
    return {**arguments_of(cluster.expected, given), "reuse": header}


def _dims(pipeline: Pipeline, before: Upstream) -> int:
    """Numbers in a signature; of some kinds the settings do not say it, but the array does."""
    if before.header is None:
        return pipeline.arguments["score"]["settings"].dims
    array = json.loads((before.path / "signature" / "zarr.json").read_text(encoding="utf-8"))
    return int(array["shape"][1])


def _expect_select(pipeline: Pipeline, before: Upstream | None) -> tuple[str | None, Facts]:
    assert before is not None
    given = arguments_of(select.expected, pipeline.arguments["select"])
    params, key = select.expected(before.key or "", **given)
    inputs = {before.path.name: short(before.key)}
    for item in select.further_inputs(**arguments_of(select.further_inputs, given)):
        inputs[item.path.name] = short(item.sha256)
    return key if before.key else None, Facts(params, inputs)


def _expect_allocate(pipeline: Pipeline, before: Upstream | None) -> tuple[str | None, Facts]:
    assert before is not None
    given = arguments_of(allocate.expected, pipeline.arguments["allocate"])
    given["measured"] = pipeline.arguments["allocate"].get("signatures") is not None
    content = UNSEEN if before.imagined else content_hash(before.path) if before.header else None
    params, key = allocate.expected([before.key or "", content or ""], **given)
    known = content is not None and before.key is not None
    return key if known else None, Facts(params, {before.path.name: short(content)})


def _recorded(header: Header) -> Facts:
    return Facts(header.params, _inputs(header))


def _expect_train(pipeline: Pipeline, before: Upstream | None) -> tuple[str | None, Facts]:
    assert before is not None
    given = dict(pipeline.arguments["train"])
    files = find_model(train.first_model(given.pop("model"), given.get("init_from")))
    params, key = train.expected(before.key or "", files, **given)
    manifest = file_sha256(stamp(before.path, "allocation")) if before.header else None
    inputs = {before.path.name: short(manifest), "model": short(files.weights_sha256)}
    return key if before.key else None, Facts(params, inputs)


def _recorded_train(header: Header) -> Facts:
    names = train.expected("", NO_MODEL)[0]
    params = {name: header.params[name] for name in names if name in header.params}
    hashes = [short(item["sha256"]) for item in header.inputs]
    read = [*(Path(item["path"]).name for item in header.inputs[:1]), "model"]
    return Facts(params, dict(zip(read, hashes, strict=False)))


def _call_on_input(function: Callable[..., Header]) -> Callable[..., Header]:
    def call(given: Mapping[str, Any], source: Path, output: Path, **how: Any) -> Header:
        return function(source, output=output, **given, **how)

    return call


LINKS = {
    "score": Link("signatures", "signatures.zarr", _expect_score, _recorded_score, _call_score),
    "cluster": Link(
        "clusters",
        "clusters.zarr",
        _expect_cluster,
        _recorded,
        _call_on_input(FUNCTIONS["cluster"]),
    ),
    "select": Link(
        "selection",
        "selection.jsonl",
        _expect_select,
        _recorded,
        _call_on_input(FUNCTIONS["select"]),
    ),
    "allocate": Link(
        "allocation",
        "allocation",
        _expect_allocate,
        _recorded,
        _call_on_input(FUNCTIONS["allocate"]),
    ),
    "train": Link("run", "run", _expect_train, _recorded_train, _call_on_input(FUNCTIONS["train"])),
}
