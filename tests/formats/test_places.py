"""Paths and URLs: their names, what a header calls them, and what is read from a store in memory."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from formats import artifacts
from formats.clusters import Clusters
from formats.data import open_dataset, open_reference
from formats.errors import ArtifactError, ArtifactMissingError, DataError, SettingError
from formats.kinds import artifact_path, find_kind
from formats.places import Url, first_line, is_url, join, local, place, relative
from formats.selection import content_hash, read_selection
from formats.signatures import Signatures
from stages.allocate import allocate
from stages.cluster import cluster
from stages.inspect import inspect
from stages.score.reuse import open_known
from stages.select import select
from stages.validate import validate
from tests.synthetic import lessons, write_signatures
from tests.tiny import write_jsonl

SIZES = [12, 20, 8]
names = st.text("abc.-_", min_size=1, max_size=6).filter(lambda name: set(name) != {"."})
paths = st.lists(names, min_size=1, max_size=4).map("/".join)


@pytest.fixture
def memory() -> Iterator[Any]:
    """fsspec's store in memory, empty."""
    import fsspec

    store = fsspec.filesystem("memory")
    yield store
    store.rm("/", recursive=True)


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("s3://bucket/a.zarr", True),
        ("hf://datasets/me/maps/a.zarr", True),
        ("simplecache::https://host:80/a", True),
        ("work/a.zarr", False),
        ("/data/a:b/c", False),
        ("a:b", False),
    ],
)
def test_what_a_url_is(name: str, url: bool) -> None:
    assert is_url(name) == url
    assert isinstance(place(name), Url) == url
    assert str(place(name)) == os.fspath(place(name)) == name


def test_names_of_urls() -> None:
    url = place("s3://bucket/work/a.zarr")
    assert str(url / "zarr.json") == "s3://bucket/work/a.zarr/zarr.json"
    assert (str(url.parent), url.name) == ("s3://bucket/work", "a.zarr")
    assert place(Path("s3://bucket/work/a.zarr")) == url  # pathlib has taken a slash away
    assert artifact_path("s3://bucket/work/a.zarr/zarr.json") == url
    assert place("file:///data/a.zarr") == Path("/data/a.zarr")
    assert type(place("file:///data/a.zarr")) is type(Path())


@given(paths, paths)
def test_what_lies_beside_a_remote_artifact_is_remote(folder: str, file: str) -> None:
    """A project that was copied as a whole to a bucket still finds its parts."""
    there = Path("/project")
    said = relative(there / file, there / folder)
    assert str(join(place(f"s3://bucket/{folder}"), said)) == f"s3://bucket/{file}"
    assert str(join(there / folder, said)) == f"/project/{file}"


@given(paths, paths)
def test_a_url_keeps_its_name_wherever_it_is_named(folder: str, file: str) -> None:
    url = place(f"gs://bucket/{file}")
    said = relative(url, Path(folder))
    assert said == f"gs://bucket/{file}"
    assert join(Path(folder), said) == join(place(f"s3://other/{folder}"), said) == url


def test_a_dataset_moves_with_its_artifact() -> None:
    sources = [
        {"kind": "file", "path": "../data.jsonl"},
        {"kind": "hub", "path": "me/data"},
        {"kind": "file", "path": "/home/me/data.jsonl"},
    ]
    moved = artifacts.rebase_dataset({"sources": sources}, Path("/p/work"), Path("/p"))
    assert [s["path"] for s in moved["sources"]] == [
        "data.jsonl",
        "me/data",
        "../home/me/data.jsonl",
    ]
    moved = artifacts.rebase_dataset({"sources": sources}, place("s3://b/work"), Path("/p"))
    assert [s["path"] for s in moved["sources"]] == [
        "s3://b/data.jsonl",
        "me/data",
        "../home/me/data.jsonl",
    ]


def test_outputs_are_local(tmp_path: Path) -> None:
    assert local(tmp_path) == tmp_path
    with pytest.raises(SettingError) as caught, artifacts.locked(Path("s3://bucket/a.zarr")):
        pass
    assert str(caught.value) == (
        "s3://bucket/a.zarr is a URL, and outputs are local; write it here and copy it there"
    )


def test_the_chain_from_memory(memory: Any, tmp_path: Path) -> None:
    """Every step reads what the step before left in the store; the results are those of local ones."""
    write_signatures(tmp_path / "signatures.zarr", lessons(SIZES)[0])

    def upload(name: str) -> str:
        memory.put(str(tmp_path / name), f"/bucket/{name}", recursive=True)
        return f"memory://bucket/{name}"

    here = cluster(tmp_path / "signatures.zarr", tmp_path / "here.zarr", clusters=3)
    remote = upload("signatures.zarr")
    there = cluster(remote, tmp_path / "clusters.zarr", clusters=3)  # type: ignore[arg-type]
    assert there.key == here.key
    assert there.inputs[0]["path"] == remote
    again = cluster(remote, tmp_path / "again.zarr", reuse=upload("clusters.zarr"))  # type: ignore[arg-type]
    assert again.stats["drift"]["moved"] == 0
    # "facility" reads the signatures behind the map: found from a remote map, and from a local one
    for clusters in (upload("clusters.zarr"), tmp_path / "clusters.zarr"):
        selection = tmp_path / "selection.jsonl"
        select(clusters, selection, count=10, method="facility", force=True)  # type: ignore[arg-type]
    url = upload("selection.jsonl")
    assert content_hash(place(url)) == content_hash(selection)
    assert (read_selection(url).row == read_selection(selection).row).all()
    plan = allocate(url, tmp_path / "plan", ranks=2, strategy="balanced")  # type: ignore[arg-type]
    assert plan.inputs[0]["path"] == url
    for name in ("clusters.zarr", "selection.jsonl", "plan"):
        found = inspect(upload(name))  # type: ignore[arg-type]
        assert found["rows"] == inspect(tmp_path / name)["rows"]
        assert found["origin"][0]["state"] == "as recorded"
        assert validate(f"memory://bucket/{name}").startswith(found["kind"])  # type: ignore[arg-type]


def test_known_signatures_may_be_remote(memory: Any, tmp_path: Path) -> None:
    path = write_signatures(tmp_path / "s.zarr", lessons(SIZES)[0])
    memory.put(str(path), "/b/s.zarr", recursive=True)
    source = Signatures.open(path)
    known = open_known(tmp_path / "new.zarr", [place("memory://b/s.zarr")], source.space)
    found = known.read(known.find(source.column("example_id")))
    assert (found["signature"] == source.column("signature")).all()


def test_a_block_that_was_not_copied_is_no_zeros(memory: Any, tmp_path: Path) -> None:
    path = write_signatures(tmp_path / "s.zarr", lessons(SIZES)[0])
    memory.put(str(path), "/b/s.zarr", recursive=True)
    memory.rm("/b/s.zarr/signature/c/0/0")
    with pytest.raises(ArtifactError) as caught:
        Signatures.open(place("memory://b/s.zarr")).column("signature")
    assert str(caught.value) == (
        "memory://b/s.zarr/signature/c/0/0 is missing; copy the artifact again"
    )


def test_rows_are_read_from_local_files(tmp_path: Path) -> None:
    data = write_jsonl(tmp_path / "data.jsonl", [{"question": "1 + 1?", "answer": "2"}])
    with open_dataset([str(data)]) as dataset:
        reference = dataset.reference(tmp_path / "work")
    with pytest.raises(DataError) as caught:
        open_reference(reference, place("s3://bucket/work"))
    assert str(caught.value) == (
        "the examples are in s3://bucket/data.jsonl, and rows are read from local files alone; "
        "copy the file here; name it with --data, or put the artifact beside it"
    )


def test_what_is_not_there(memory: Any) -> None:
    memory.pipe("/b/notes.txt", b"nothing of ours")
    for name in ("memory://b/nothing.zarr", "memory://b/notes.txt"):
        with pytest.raises(ArtifactMissingError) as caught:
            find_kind(place(name))
        assert str(caught.value) == f"{name} is no artifact of cluster-cli; check the URL"
    with pytest.raises(ArtifactMissingError) as caught:
        Clusters.open(place("memory://b/nothing.zarr"))
    assert str(caught.value) == (
        "memory://b/nothing.zarr/zarr.json does not exist; "
        "make it with `cluster-cli cluster ... -o nothing.zarr`"
    )


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "s3fs", None)
    with pytest.raises(ArtifactError) as caught:
        Clusters.open(place("s3://bucket/c.zarr"))
    assert str(caught.value) == (
        "cannot read s3://bucket/c.zarr/zarr.json: the package s3fs is missing; pip install s3fs"
    )


def test_a_first_line_of_any_length(memory: Any, tmp_path: Path) -> None:
    for length in (0, 10, 1 << 16, 300_000):
        line, path = "ä" * length, tmp_path / "lines"
        path.write_text(f"{line}\nmore\n", encoding="utf-8")
        memory.pipe("/b/lines", path.read_bytes())
        assert first_line(place("memory://b/lines")) == line
        assert first_line(path) == f"{line}\n"
