"""Maps that last: reuse, drift, extension, warm start."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.clusters import Clusters
from formats.errors import ArtifactError, SettingError
from stages.cluster import cluster
from stages.cluster.reuse import threshold
from tests.synthetic import Notes, lessons, make_ids, write_signatures


def two_halves(folder: Path, **more: Any) -> tuple[np.ndarray, np.ndarray]:
    """Signatures of two halves of one dataset, the first one mapped; the lessons of each half."""
    rows, lesson = lessons([200, 120, 80, 40], dims=24, noise=0.4)
    for name, part in (("old", slice(0, 220)), ("new", slice(220, 440))):
        ids = make_ids(np.arange(440)[part])
        write_signatures(folder / f"{name}.s.zarr", rows[part], ids=ids, **more)
    cluster(folder / "old.s.zarr", folder / "old.zarr", clusters=4)
    return lesson[:220], lesson[220:]


def test_reuse_keeps_centroids_and_numbers(tmp_path: Path) -> None:
    lesson_old, lesson_new = two_halves(tmp_path)
    notes = Notes()
    header = cluster(
        tmp_path / "new.s.zarr", tmp_path / "new.zarr", reuse=tmp_path / "old.zarr", reporter=notes
    )
    old, new = Clusters.open(tmp_path / "old.zarr"), Clusters.open(tmp_path / "new.zarr")
    for name in ("centroid", "centre"):
        assert old.column(name).tobytes() == new.column(name).tobytes()
    name_of_lesson = {
        int(lesson): int(label) for lesson, label in zip(lesson_old, old.label, strict=True)
    }
    assert [name_of_lesson[int(lesson)] for lesson in lesson_new] == new.label.tolist()
    drift = header.stats["drift"]
    assert drift["far"] < 0.05
    assert drift["moved"] < 0.15
    assert (drift["grew"], drift["vanished"], drift["refit"]) == ([], [], False)
    assert notes.messages[-1] == drift["advice"]
    assert drift["advice"].endswith(": the map holds")
    assert [entry["path"] for entry in header.inputs] == ["new.s.zarr", "old.zarr"]


def test_the_same_rows_get_the_same_map(tmp_path: Path) -> None:
    two_halves(tmp_path)
    cluster(tmp_path / "old.s.zarr", tmp_path / "again.zarr", reuse=tmp_path / "old.zarr")
    old, again = Clusters.open(tmp_path / "old.zarr"), Clusters.open(tmp_path / "again.zarr")
    for name in ("label", "similarity", "size", "spread"):
        assert old.column(name).tobytes() == again.column(name).tobytes(), name


def test_another_space_is_an_error_that_names_the_difference(tmp_path: Path) -> None:
    two_halves(tmp_path)
    other = write_signatures(tmp_path / "other.zarr", lessons([10, 10])[0], space_id="other")
    with pytest.raises(ArtifactError) as error:
        cluster(other, tmp_path / "c.zarr", reuse=tmp_path / "old.zarr")
    assert str(error.value) == (
        f"{other} and {tmp_path / 'old.zarr'} are not of the same signature space "
        "(different: sketch); score the data with the map's model and settings, "
        "or cluster without --reuse"
    )


def strange(folder: Path) -> tuple[Path, np.ndarray]:
    """The first half again, and 60 rows of a lesson the map has never seen."""
    rows, _ = lessons([200, 120, 80, 40], dims=24, noise=0.4)
    known, _ = np.linalg.qr(rows[:220].T @ rows[:220])
    unseen = known[:, -1] + 0.05 * np.random.default_rng(5).normal(size=(60, 24))
    both = np.concatenate([rows[:220], unseen])
    path = write_signatures(folder / "strange.s.zarr", both, ids=make_ids(np.arange(1000)[:280]))
    return path, np.arange(280) >= 220


def test_drift_is_noticed(tmp_path: Path) -> None:
    two_halves(tmp_path)
    path, _ = strange(tmp_path)
    notes = Notes()
    header = cluster(path, tmp_path / "c.zarr", reuse=tmp_path / "old.zarr", reporter=notes)
    assert header.stats["drift"]["far"] > 0.2
    assert header.stats["drift"]["refit"]
    assert notes.warnings[-1].endswith("fit the map again (--refit or --extend)")


def test_extend_opens_clusters_and_keeps_old_labels(tmp_path: Path) -> None:
    two_halves(tmp_path)
    path, unseen = strange(tmp_path)
    old = Clusters.open(tmp_path / "old.zarr")
    notes = Notes()
    header = cluster(
        path, tmp_path / "c.zarr", reuse=tmp_path / "old.zarr", extend=True, reporter=notes
    )
    new = Clusters.open(tmp_path / "c.zarr")
    assert header.stats["opened"] >= 1
    assert header.stats["clusters"] == 4 + header.stats["opened"]
    assert (new.label[unseen] >= 4).mean() > 0.95
    assert (new.label[~unseen] == old.label).mean() > 0.98
    assert new.column("centroid")[:4].tobytes() == old.column("centroid").tobytes()
    assert f"{header.stats['opened']} new clusters were opened" in notes.messages


def test_extend_without_need_opens_nothing_much(tmp_path: Path) -> None:
    two_halves(tmp_path)
    cluster(tmp_path / "old.s.zarr", tmp_path / "c.zarr", reuse=tmp_path / "old.zarr", extend=True)
    old, new = Clusters.open(tmp_path / "old.zarr"), Clusters.open(tmp_path / "c.zarr")
    assert (new.label == old.label).mean() > 0.97


def changed(folder: Path) -> np.ndarray:
    """Eight overlapping lessons mapped with 16 clusters, then 5 % of 1,000 rows replaced by others.

    Returns whether a row stayed as it was.
    """
    sizes = [250, 200, 150, 125, 100, 75, 60, 40]
    rows, _ = lessons(sizes, dims=48, noise=1.0)
    others, _ = lessons(sizes, dims=48, noise=1.0, seed=3)
    write_signatures(folder / "a.s.zarr", rows)
    cluster(folder / "a.s.zarr", folder / "a.zarr", clusters=16)
    stays = np.random.default_rng(0).permutation(1000) >= 50
    number = np.arange(1000) + np.where(stays, 0, 5000)
    mixed = np.where(stays[:, None], rows, others)
    write_signatures(folder / "b.s.zarr", mixed, ids=make_ids(number))
    return stays


@pytest.mark.parametrize(
    ("how", "kept"), [({}, 1.0), ({"extend": True}, 0.99), ({"refit": True}, 0.95)]
)
def test_after_a_change_of_5_percent_unchanged_rows_keep_their_labels(
    tmp_path: Path, how: dict[str, bool], kept: float
) -> None:
    """The same number, not only the same company. A refit moves a few: with twice as many clusters as
    lessons, every second border runs through noise.
    """
    stays = changed(tmp_path)
    before = Clusters.open(tmp_path / "a.zarr")
    cluster(tmp_path / "b.s.zarr", tmp_path / "b.zarr", reuse=tmp_path / "a.zarr", **how)
    after = Clusters.open(tmp_path / "b.zarr")
    assert (before.label == after.label)[stays].mean() >= kept
    same = before.column("centroid").tobytes() == after.column("centroid")[:16].tobytes()
    assert same is ("refit" not in how)


def test_a_vanished_cluster_keeps_its_number(tmp_path: Path) -> None:
    _, lesson_new = two_halves(tmp_path)
    rows, _ = lessons([200, 120, 80, 40], dims=24, noise=0.4)
    kept = np.flatnonzero(lesson_new != 0)
    path = write_signatures(tmp_path / "part.zarr", rows[220:][kept], ids=make_ids(kept + 220))
    notes = Notes()
    header = cluster(path, tmp_path / "c.zarr", reuse=tmp_path / "old.zarr", reporter=notes)
    assert header.stats["drift"]["vanished"] == [0]
    assert "clusters that are empty now: 0" in notes.messages
    assert Clusters.open(tmp_path / "c.zarr").size[0] == 0
    from stages.select import select

    for quota in ("equal", "sqrt", "proportional", "neyman"):
        select(tmp_path / "c.zarr", tmp_path / "s.jsonl", fraction=0.5, quota=quota)


def test_threshold_leaves_each_row_out_of_its_centroid(tmp_path: Path) -> None:
    """Against the definition: the row's cosine to the mean of the others in its cluster."""
    rows, _ = lessons([30, 20], dims=8, noise=0.8)
    path = write_signatures(tmp_path / "s.zarr", rows)
    cluster(path, tmp_path / "c.zarr", clusters=2, centre=False)
    found = Clusters.open(tmp_path / "c.zarr")
    unit = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    cosines = []
    for at, label in enumerate(found.label):
        others = np.flatnonzero((found.label == label) & (np.arange(50) != at))
        total = unit[others].sum(axis=0)
        cosines.append(unit[at] @ total / np.linalg.norm(total))
    assert threshold(found) == pytest.approx(np.quantile(cosines, 0.01), abs=3e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"extend": True}, "--extend needs an older map; add --reuse clusters.zarr"),
        ({"refit": True}, "--refit needs an older map; add --reuse clusters.zarr"),
        (
            {"reuse": "old.zarr", "clusters": 3},
            "--clusters 3 and --reuse are both given: an older map has its own clusters; "
            "leave one out",
        ),
    ],
)
def test_contradictions(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    two_halves(tmp_path)
    if "reuse" in arguments:
        arguments = {**arguments, "reuse": tmp_path / arguments["reuse"]}
    with pytest.raises(SettingError) as error:
        cluster(tmp_path / "new.s.zarr", tmp_path / "c.zarr", **arguments)
    assert str(error.value) == message
