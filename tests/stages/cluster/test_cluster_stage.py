"""The cluster stage on made-up signatures whose lessons are known."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score

from formats.clusters import Clusters
from formats.errors import ArtifactError, SettingError
from formats.signatures import DUPLICATE, EMPTY_RESPONSE, NONFINITE, OK, TRUNCATED
from stages.cluster import cluster
from stages.cluster.assign import nearest
from stages.cluster.contents import draw, find_contents
from stages.cluster.mapping import number
from tests.synthetic import Notes, lessons, make_ids, write_signatures


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


COLUMNS = ("label", "similarity", "centroid", "centre", "size", "tokens", "spread")


def tables(path: Path) -> dict[str, bytes]:
    clusters = Clusters.open(path)
    return {name: clusters.column(name).tobytes() for name in COLUMNS}


def same_partition(left: np.ndarray, right: np.ndarray) -> bool:
    pairs = set(zip(left.tolist(), right.tolist(), strict=True))
    return len(pairs) == len(set(left.tolist())) == len(set(right.tolist()))


@pytest.mark.parametrize("centre", [True, False])
def test_lessons_are_found(tmp_path: Path, centre: bool) -> None:
    rows, lesson = lessons([60, 40, 20, 10])
    path = write_signatures(tmp_path / "s.zarr", rows)
    header = cluster(path, tmp_path / "c.zarr", clusters=4, centre=centre)
    found = Clusters.open(tmp_path / "c.zarr")
    assert same_partition(lesson, found.label)
    assert found.size.tolist() == [60, 40, 20, 10]
    assert header.stats["clusters"] == 4
    assert header.stats["clusterable"] == header.stats["rows"] == 130
    assert (np.abs(np.linalg.norm(found.column("centroid"), axis=1) - 1) < 1e-6).all()
    assert bool(found.column("centre").any()) is centre


def test_similarity_is_the_cosine_to_the_own_centroid(tmp_path: Path) -> None:
    rows, _ = lessons([30, 20])
    path = write_signatures(tmp_path / "s.zarr", rows)
    cluster(path, tmp_path / "c.zarr", clusters=2)
    found = Clusters.open(tmp_path / "c.zarr")
    stored = unit(rows).astype(np.float16).astype(np.float64)
    centred = stored - found.column("centre")
    centred /= np.linalg.norm(centred, axis=1, keepdims=True)
    expected = (centred * found.column("centroid")[found.label]).sum(axis=1)
    assert np.abs(found.column("similarity") - expected).max() < 1e-5
    assert (found.column("similarity") > 0.8).all()


def test_tokens_and_spread(tmp_path: Path) -> None:
    rows, lesson = lessons([30, 20])
    rows *= np.where(lesson == 0, 3.0, 1.0)[:, None]
    path = write_signatures(tmp_path / "s.zarr", rows)
    cluster(path, tmp_path / "c.zarr", clusters=2)
    found = Clusters.open(tmp_path / "c.zarr")
    row_tokens = found.column("row_tokens")
    assert np.array_equal(row_tokens, 10 + np.arange(50) % 50 + 1)
    for label in range(2):
        members = found.label == label
        assert found.column("tokens")[label] == row_tokens[members].sum()
        away = rows[members] - rows[members].mean(axis=0)
        expected = np.sqrt((away**2).sum(axis=1).mean())
        assert found.column("spread")[label] == pytest.approx(expected, rel=2e-3)


def test_unusable_rows_and_duplicates(tmp_path: Path) -> None:
    rows, _ = lessons([20, 20])
    status = np.full(40, OK)
    ids = make_ids(np.arange(40))
    status[3], status[4], status[5] = EMPTY_RESPONSE, NONFINITE, TRUNCATED
    status[10], ids[10] = DUPLICATE, ids[1]
    status[11], ids[11] = DUPLICATE, ids[4]  # repeats a row that has no signature
    path = write_signatures(tmp_path / "s.zarr", rows, ids=ids, status=status)
    notes = Notes()
    header = cluster(path, tmp_path / "c.zarr", clusters=2, reporter=notes)
    found = Clusters.open(tmp_path / "c.zarr")
    assert np.flatnonzero(found.label < 0).tolist() == [3, 4, 11]
    assert found.label[10] == found.label[1]
    assert found.column("similarity")[10] == found.column("similarity")[1]
    assert found.size.sum() == 37
    assert np.flatnonzero(~found.distinct).tolist() == [3, 4, 10, 11]
    assert header.stats["not_clustered"] == {"empty_response": 1, "nonfinite": 1, "duplicate": 1}
    assert notes.warnings == [
        "3 of 40 rows are not clustered (1 empty_response, 1 nonfinite, 1 duplicate)"
    ]


def test_duplicates_weigh_in_the_fit(tmp_path: Path) -> None:
    """The centre is the mean over rows, repetitions included."""
    rows = np.eye(4)[[0, 1, 0, 0]]
    ids = make_ids(np.array([0, 1, 0, 0]))
    status = [OK, OK, DUPLICATE, DUPLICATE]
    path = write_signatures(tmp_path / "s.zarr", rows, ids=ids, status=np.array(status))
    cluster(path, tmp_path / "c.zarr", clusters=2)
    found = Clusters.open(tmp_path / "c.zarr")
    assert found.column("centre").tolist() == [0.75, 0.25, 0, 0]
    assert found.size.tolist() == [3, 1]


@pytest.mark.parametrize("block", [7, 64, 1000])
def test_same_bytes_for_any_block_size_and_row_order(tmp_path: Path, block: int) -> None:
    rows, _ = lessons([50, 30, 20, 10], noise=0.8)
    ids = make_ids(np.arange(110))
    tokens = np.arange(110) + 1
    write_signatures(tmp_path / "s.zarr", rows, tokens=tokens)
    order = np.random.default_rng(1).permutation(110)
    write_signatures(
        tmp_path / "t.zarr", rows[order], ids=ids[order], tokens=tokens[order], block=block
    )
    cluster(tmp_path / "s.zarr", tmp_path / "c.zarr", clusters=6, sample=70)
    cluster(tmp_path / "t.zarr", tmp_path / "d.zarr", clusters=6, sample=70)
    left, right = Clusters.open(tmp_path / "c.zarr"), Clusters.open(tmp_path / "d.zarr")
    for name in ("centroid", "centre", "size", "tokens", "spread"):
        assert left.column(name).tobytes() == right.column(name).tobytes(), name
    for name in ("label", "similarity"):
        assert left.column(name)[order].tobytes() == right.column(name).tobytes(), name


def test_same_bytes_for_one_and_two_threads(tmp_path: Path) -> None:
    from threadpoolctl import threadpool_limits

    rows, _ = lessons([300, 200, 100], dims=32, noise=0.9)
    path = write_signatures(tmp_path / "s.zarr", rows)
    for threads in (1, 2):
        with threadpool_limits(limits=threads):
            cluster(path, tmp_path / f"{threads}.zarr", clusters=8)
    assert tables(tmp_path / "1.zarr") == tables(tmp_path / "2.zarr")


def test_other_seeds_may_differ_and_equal_seeds_do_not(tmp_path: Path) -> None:
    rows, _ = lessons([40, 40], noise=2.0)
    path = write_signatures(tmp_path / "s.zarr", rows)
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        cluster(path, tmp_path / f"{name}.zarr", clusters=10, seed=seed, sample=30)
    assert tables(tmp_path / "a.zarr") == tables(tmp_path / "b.zarr")
    assert tables(tmp_path / "a.zarr") != tables(tmp_path / "c.zarr")


def test_rounds_over_all_rows_improve_a_map_of_a_sample(tmp_path: Path) -> None:
    """A sample of 60 of 600 rows: moving the centroids to all rows brings every row nearer."""
    rows, lesson = lessons([200, 200, 200], dims=48, noise=1.5)
    path = write_signatures(tmp_path / "s.zarr", rows)
    found = []
    for rounds in (0, 1, 3):
        notes = Notes()
        more = {"clusters": 3, "sample": 60, "rounds": rounds}
        found.append(cluster(path, tmp_path / f"{rounds}.zarr", reporter=notes, **more))
        assert notes.messages[0] == "fitting 3 clusters on 60 of 600 distinct examples"
    similarity = [header.stats["mean_similarity"] for header in found]
    assert similarity[0] + 0.02 < similarity[1] <= similarity[2] + 1e-6
    assert [header.params.get("rounds") for header in found] == [0, None, 3]
    assert len({header.key for header in found}) == 3
    assert adjusted_rand_score(lesson, Clusters.open(tmp_path / "3.zarr").label) > 0.95


def test_rounds_mean_nothing_where_all_rows_were_fitted(tmp_path: Path) -> None:
    path = write_signatures(tmp_path / "s.zarr", lessons([30, 20], noise=1.5)[0])
    for rounds in (0, 5):
        cluster(path, tmp_path / f"{rounds}.zarr", clusters=4, rounds=rounds)
    assert tables(tmp_path / "0.zarr") == tables(tmp_path / "5.zarr")


def test_up_to_date_and_force(tmp_path: Path) -> None:
    rows, _ = lessons([10, 10])
    path = write_signatures(tmp_path / "s.zarr", rows)
    output = tmp_path / "c.zarr"
    first = cluster(path, output, clusters=2)
    before = (output / "label" / "c" / "0").stat().st_ino
    notes = Notes()
    assert cluster(path, output, clusters=2, reporter=notes).key == first.key
    assert notes.messages == [f"{output} is up to date"]
    assert (output / "label" / "c" / "0").stat().st_ino == before
    cluster(path, output, clusters=2, force=True)
    assert (output / "label" / "c" / "0").stat().st_ino != before
    assert cluster(path, output, clusters=3).key != first.key
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["c.zarr", "s.zarr"]


def test_fewer_directions_than_clusters(tmp_path: Path) -> None:
    path = write_signatures(tmp_path / "s.zarr", np.eye(3)[[0, 1, 2, 0, 1, 2, 0]])
    notes = Notes()
    header = cluster(path, tmp_path / "c.zarr", clusters=5, centre=False, reporter=notes)
    assert header.stats["clusters"] == 3
    assert notes.messages[0] == "3 clusters instead of 5: the others were empty"
    assert Clusters.open(tmp_path / "c.zarr").size.tolist() == [3, 2, 2]


def test_one_example(tmp_path: Path) -> None:
    path = write_signatures(tmp_path / "s.zarr", np.eye(4)[:1])
    header = cluster(path, tmp_path / "c.zarr")
    assert header.stats["clusters"] == 1
    assert header.stats["auto"]["reason"] == (
        "one cluster: 1 examples are too few to compare numbers"
    )


def test_nothing_usable(tmp_path: Path) -> None:
    path = write_signatures(tmp_path / "s.zarr", np.eye(4), status=np.full(4, EMPTY_RESPONSE))
    with pytest.raises(ArtifactError) as error:
        cluster(path, tmp_path / "c.zarr")
    assert str(error.value) == (
        f"{path} has no usable row among 4: nothing to cluster; "
        "look at the statuses of its rows; a longer --max-length may help"
    )
    assert not (tmp_path / "c.zarr").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"clusters": 0}, "the number of clusters is 0; give a positive number, or auto"),
        ({"clusters": "many"}, "the number of clusters is 'many'; give a positive number, or auto"),
        ({"sample": 0}, "the sample is 0 rows; give a positive number"),
        ({"rounds": -1}, "there are -1 rounds over all rows; give 0 or more"),
        (
            {"clusters": 20, "memory": 1024},
            "20 clusters need a sample of at least as many rows, but 0.0 GiB hold 8; "
            "allow more memory, or ask for fewer clusters",
        ),
    ],
)
def test_bad_settings(tmp_path: Path, arguments: dict, message: str) -> None:
    path = write_signatures(tmp_path / "s.zarr", lessons([10, 10])[0])
    with pytest.raises(SettingError) as error:
        cluster(path, tmp_path / "c.zarr", **arguments)
    assert str(error.value) == message


def test_auto_finds_the_lessons(tmp_path: Path) -> None:
    rows, _ = lessons([60] * 8, dims=16, noise=0.3)
    path = write_signatures(tmp_path / "s.zarr", rows)
    notes = Notes()
    header = cluster(path, tmp_path / "c.zarr", reporter=notes)
    assert 7 <= header.stats["clusters"] <= 10
    assert notes.messages[0] == header.stats["auto"]["reason"]
    assert set(header.stats["auto"]["curve"][0]) == {"clusters", "information", "agreement"}


def test_nearest_breaks_ties_by_the_lower_number() -> None:
    centroid = unit(np.array([[0, 1], [1, 1], [1, 1], [1, 0]], dtype=np.float32))
    rows = unit(np.array([[2, 2], [1, 0], [0, 3]], dtype=np.float32))
    label, similarity = nearest(rows, centroid)
    assert label.tolist() == [1, 3, 0]
    assert similarity == pytest.approx([1, 1, 1])


def test_number_by_size_then_smallest_id() -> None:
    order, label = number(np.array([5, 2, 2, 7, 5]), np.array([1, 1, 1, 4, 1]))
    assert order.tolist() == [7, 5, 2]
    assert label.tolist() == [1, 2, 2, 0, 1]


def test_contents_take_the_first_usable_row() -> None:
    ids = make_ids(np.array([0, 1, 0, 2, 1, 2]))
    status = np.array([DUPLICATE, OK, TRUNCATED, NONFINITE, DUPLICATE, DUPLICATE])
    contents = find_contents(ids, status)
    assert sorted(contents.row.tolist()) == [1, 2]
    assert contents.multiplicity.tolist() == [2, 2]
    by_row = [int(contents.row[i]) if i >= 0 else -1 for i in contents.of_row]
    assert by_row == [2, 1, 2, -1, 1, -1]


def test_draw_is_a_uniform_sample_of_contents() -> None:
    contents = find_contents(make_ids(np.arange(500)), np.zeros(500))
    assert draw(contents, 1000, 0).tolist() == list(range(500))
    first, second = draw(contents, 100, 0), draw(contents, 100, 1)
    assert len(set(first.tolist())) == len(first) == 100
    assert 5 < len(set(first.tolist()) & set(second.tolist())) < 40  # 20 expected by chance
