"""Damage of every kind is found and named; whole artifacts pass."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from formats.errors import ArtifactError, ArtifactMissingError
from formats.fingerprints import digest
from stages.cluster import cluster
from stages.validate import validate
from tests import prepared
from tests.synthetic import lessons, write_signatures


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return prepared.untouched(tmp_path_factory) / "work"


@pytest.fixture
def work(tmp_path_factory: pytest.TempPathFactory, tmp_path: Path) -> Path:
    return prepared.copy(tmp_path_factory, tmp_path / "copy") / "work"


def problem(path: Path) -> str:
    """The one line, its path shortened."""
    with pytest.raises(ArtifactError) as error:
        validate(path)
    text = str(error.value)
    assert "\n" not in text
    return text.replace(f"{path.parent}/", "")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("signatures.zarr", "signatures, 60 rows of 64 numbers, 28 chunks"),
        ("signatures.zarr/zarr.json", "signatures, 60 rows of 64 numbers, 28 chunks"),
        ("clusters.zarr", "clusters, 60 rows in 4 clusters, "),
        ("selection.jsonl", "selection, 19 examples, as in "),
        ("allocation", "allocation, 19 examples once in each of 2 epochs over 1 ranks, as in "),
        ("run", "run, 10 steps, 21 weights of full length"),
    ],
)
def test_whole_artifacts_pass(whole: Path, name: str, says: str) -> None:
    assert validate(whole / name).startswith(says)


def flip(file: Path, at: int, bit: int) -> None:
    data = bytearray(file.read_bytes())
    data[at % len(data)] ^= 1 << bit
    file.write_bytes(bytes(data))


def test_a_flipped_bit_in_any_chunk_is_found(work: Path) -> None:
    """One bit in every chunk of both Zarr artifacts, one at a time, at places that differ."""
    for name in ("signatures.zarr", "clusters.zarr"):
        for number, file in enumerate(sorted((work / name).glob("*/c/**/*"))):
            if file.is_dir():
                continue
            kept = file.read_bytes()
            flip(file, 7 * number, number % 8)
            assert problem(work / name).startswith(f"{file.relative_to(work)} is damaged: ")
            file.write_bytes(kept)
        validate(work / name)


def test_a_chunk_cut_short_or_gone_is_found(work: Path) -> None:
    file = work / "signatures.zarr" / "signature" / "c" / "1" / "0"
    kept = file.read_bytes()
    file.write_bytes(kept[:-100])
    assert problem(work / "signatures.zarr").startswith(
        "signatures.zarr/signature/c/1/0 is damaged: "
    )
    file.unlink()
    assert problem(work / "signatures.zarr") == "signatures.zarr/signature/c/1/0 is missing"


@pytest.mark.parametrize(
    ("array", "index", "value", "message"),
    [
        ("signature", 3, 0.5, "signature: row 3 has length 4.0000, not 1"),
        ("status", 2, 255, "status: number 2 (255) is no status"),
        ("status", 2, 4, "signature: row 2 has length 1.0001, not 0"),
        ("norm", 5, np.nan, "norm: number 5 (nan) is no length"),
        ("loss", 5, np.inf, "loss: number 5 (inf) is no loss"),
        ("response_tokens", 5, 0, "response_tokens: number 5 (0) is no length"),
        ("example_id", 1, 0, "example_id: an id stands twice, not marked duplicate"),
    ],
)
def test_impossible_signatures_are_found(
    tmp_path: Path, array: str, index: int, value: float, message: str
) -> None:
    path = write_signatures(tmp_path / "s.zarr", lessons([40, 30])[0])
    attributes = dict(zarr.open_group(path).attrs)
    attributes |= {"space_id": digest(attributes["space"])}
    group = zarr.open_group(path, mode="r+")
    group.attrs.put(attributes)
    validate(path)
    group[array][index] = value
    if array == "example_id":
        group[array][index + 1] = value
    if array == "signature":  # 16 numbers of 1 each
        group[array][index] = 1.0
    assert problem(path) == f"s.zarr: array {message}"


def test_headers_that_contradict_the_arrays_are_found(work: Path) -> None:
    for name, figure, says in (
        ("signatures.zarr", "tokens", "tokens is 2803 by the arrays, the header says 1"),
        ("clusters.zarr", "mean_similarity", "the header says 1"),
    ):
        edit_json(
            work / name / "zarr.json", lambda j, f=figure: j["attributes"]["stats"].update({f: 1})
        )
        assert problem(work / name).endswith(says)
    edit_json(work / "signatures.zarr/zarr.json", lambda j: j["attributes"].update(space_id="x"))
    assert problem(work / "signatures.zarr") == (
        "signatures.zarr/zarr.json: space_id is not the hash of space"
    )


def edit_json(file: Path, change: Callable[[dict[str, Any]], Any]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("array", "change", "message"),
    [
        ("size", 7, "array size: number 0 (7) is not the count of its rows "),
        ("tokens", 7, "array tokens: number 0 (7) is not the sum of its rows"),
        ("similarity", 2.0, "array similarity: number 0 (2.0) is no cosine"),
        ("label", 99, "labels reach from "),
    ],
)
def test_impossible_clusters_are_found(
    tmp_path: Path, array: str, change: float, message: str
) -> None:
    source = write_signatures(tmp_path / "s.zarr", lessons([40, 30, 20])[0])
    cluster(source, tmp_path / "c.zarr", clusters=3)
    zarr.open_group(tmp_path / "c.zarr", mode="r+")[array][0] = change
    assert message in problem(tmp_path / "c.zarr")


def test_missing_and_misshapen_arrays_are_named(work: Path) -> None:
    shutil.rmtree(work / "signatures.zarr" / "norm")
    assert problem(work / "signatures.zarr") == "signatures.zarr: array norm is missing"
    group = zarr.open_group(work / "signatures.zarr", mode="r+")
    group.create_array("norm", data=np.ones(60))
    assert problem(work / "signatures.zarr") == (
        "signatures.zarr/norm: holds float64 (60,), not float32 (60,)"
    )


def rewrite(path: Path, change: Callable[[list[dict[str, Any]]], Any]) -> None:
    """Edits a JSONL file's lines, the header first."""
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    change(lines)
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: x[1].update(weight=3.0), "selection.jsonl: the weights average "),
        (lambda x: x[1].update(tokens=1), "selection.jsonl: the examples have "),
        (
            lambda x: x[1].update(cluster=(x[1]["cluster"] + 1) % 4),
            "selection.jsonl:2: cluster or id",
        ),
        (
            lambda x: x[2].update(id="0" * 32),
            "selection.jsonl:3: cluster or id is not that of row ",
        ),
        (
            lambda x: x[19].update(row=60),
            "selection.jsonl: row 60 is beyond the 60 of clusters.zarr",
        ),
        (lambda x: x.insert(1, x.pop(2)), "selection.jsonl:3: row "),
        (lambda x: x.pop(), "selection.jsonl holds 18 examples, its header says 19"),
    ],
)
def test_impossible_selections_are_found(
    work: Path, change: Callable[[list[dict[str, Any]]], Any], message: str
) -> None:
    rewrite(work / "selection.jsonl", change)
    assert problem(work / "selection.jsonl").startswith(message)


def test_a_selection_without_its_map_is_checked_alone(work: Path) -> None:
    shutil.rmtree(work / "clusters.zarr")
    says = validate(work / "selection.jsonl")
    assert says == f"selection, 19 examples; {work / 'clusters.zarr'} is not there to compare with"


def seal(folder: Path) -> None:
    """Makes the checksums those of the files, as somebody who edits a plan might."""
    from formats.fingerprints import file_sha256

    def change(manifest: dict[str, Any]) -> None:
        for entry in manifest["files"]:
            entry["sha256"] = file_sha256(folder / entry["name"])

    edit_json(folder / "manifest.json", change)


def move_row(lines: list[dict[str, Any]], name: str, value: Any) -> None:
    lines[0][name][0] = value


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda x: move_row(x, "rows", x[1]["rows"][0]), "allocation/rank-00000.jsonl: row "),
        (lambda x: move_row(x, "weights", 5.0), "allocation/rank-00000.jsonl: row "),
        (lambda x: x[0].update({n: x[0][n][1:] for n in LISTS}), "allocation: row "),
    ],
)
def test_impossible_allocations_are_found(
    work: Path, change: Callable[[list[dict[str, Any]]], Any], message: str
) -> None:
    rewrite(work / "allocation" / "rank-00000.jsonl", change)
    assert problem(work / "allocation").startswith(
        "allocation/rank-00000.jsonl was changed after it was written (its checksum differs)"
    )
    seal(work / "allocation")
    assert problem(work / "allocation").startswith(message)


LISTS = ("rows", "ids", "weights", "clusters", "tokens")


def test_an_allocation_that_forgets_a_row_in_every_epoch_is_found(work: Path) -> None:
    """It agrees with itself, so only the selection can tell."""
    forgotten = json.loads((work / "selection.jsonl").read_text().splitlines()[1])["row"]

    def change(lines: list[dict[str, Any]]) -> None:
        for line in lines:
            if forgotten in line["rows"]:
                at = line["rows"].index(forgotten)
                for name in LISTS:
                    line[name].pop(at)

    rewrite(work / "allocation" / "rank-00000.jsonl", change)
    seal(work / "allocation")
    assert (
        problem(work / "allocation") == f"allocation: row {forgotten} is missing in selection.jsonl"
    )


def test_a_stray_rank_file_is_found(work: Path) -> None:
    (work / "allocation" / "rank-00001.jsonl").write_text("")
    assert problem(work / "allocation") == ("allocation/rank-00001.jsonl belongs to no rank of 1")


def test_damaged_runs_are_found(work: Path) -> None:
    weights = work / "run" / "model" / "model.safetensors"
    kept = weights.read_bytes()
    weights.write_bytes(kept[:-1])
    assert problem(work / "run") == (
        f"run/model/model.safetensors has {len(kept) - 1:,} bytes, not {len(kept):,}: it is cut short"
    )
    weights.write_bytes(b"\xff" * 64)
    assert problem(work / "run") == (
        "run/model/model.safetensors is damaged: its header is longer than the file"
    )
    weights.unlink()
    assert problem(work / "run") == "run/model holds no model: there is no .safetensors file"
    (work / "run" / "model" / "config.json").unlink()
    assert problem(work / "run") == "run/model holds no model: there is no config.json"
    rewrite(work / "run" / "metrics.jsonl", lambda lines: lines[2].update(loss=float("nan")))
    assert problem(work / "run") == "run/metrics.jsonl: the loss of step 2 is not a number"
    rewrite(work / "run" / "metrics.jsonl", lambda lines: lines.pop(4))
    assert problem(work / "run") == "run/metrics.jsonl has 9 steps, run.json says 10"


def test_what_is_no_artifact(work: Path, tmp_path: Path) -> None:
    with pytest.raises(ArtifactMissingError) as error:
        validate(tmp_path / "nothing")
    assert str(error.value) == f"{tmp_path / 'nothing'} does not exist; check the path"
    assert problem(work.parent / "data.jsonl") == (
        "data.jsonl is no artifact of cluster-cli; give one of signatures, clusters, selection, "
        "allocation, run, evaluation, comparison"
    )
    edit_json(work / "signatures.zarr" / "zarr.json", lambda j: j.update(attributes={}))
    assert problem(work / "signatures.zarr") == (
        "signatures.zarr is incomplete; run the command that makes it again"
    )
