"""Every control arm against a small independent reference."""

from __future__ import annotations

import shutil
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats import blocks
from formats.clusters import Clusters
from formats.errors import ArtifactError
from formats.selection import read_selection
from formats.signatures import DUPLICATE
from stages.cluster import cluster
from stages.select import select
from stages.select.greedy import facility, k_centre, matching_pursuit
from stages.select.members import outliers
from stages.select.pool import read_pool
from stages.select.vectors import Fold, unit
from tests.synthetic import PUBLISHED, lessons, make_ids, write_clusters, write_signatures


def unit_rows(count: int, dims: int, seed: int) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(count, dims))
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)


@pytest.mark.parametrize("seed", range(5))
def test_k_centre_against_pairwise_distances(seed: int) -> None:
    rows = unit_rows(25, 4, seed).astype(np.float64)
    distance = 1 - rows @ rows.T
    chosen = [int((rows @ rows.mean(axis=0)).argmax())]
    while len(chosen) < 25:
        left = [i for i in range(25) if i not in chosen]
        chosen.append(max(left, key=lambda i: min(distance[i, j] for j in chosen)))
    assert list(k_centre(rows.astype(np.float32))) == chosen


@pytest.mark.parametrize("seed", range(5))
def test_facility_against_the_definition(seed: int) -> None:
    rows = unit_rows(15, 4, seed).astype(np.float64)
    similarity = (1 + rows @ rows.T) / 2

    def value(subset: list[int]) -> float:
        return round(float(sum(max(similarity[i, j] for j in subset) for i in range(15))), 6)

    chosen: list[int] = []
    while len(chosen) < 8:
        left = [i for i in range(15) if i not in chosen]
        chosen.append(max(left, key=lambda i: value([*chosen, i])))
    assert list(facility(rows.astype(np.float32)))[:8] == chosen


@pytest.mark.parametrize("order", [k_centre, facility, matching_pursuit])
def test_what_comes_first_is_built_upon(order: Any) -> None:
    """Given the beginning of its own order, a greedy order goes on as it would have."""
    rows = unit_rows(30, 5, 1)
    whole = list(order(rows))
    assert list(order(rows, whole[:7])) == whole
    other = list(order(rows, [29, 3]))
    assert other[:2] == [29, 3]
    assert sorted(other) == list(range(30))


@pytest.mark.parametrize("seed", range(5))
def test_matching_pursuit_against_least_squares(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = random.normal(size=(20, 12)) + 0.5
    target = rows.mean(axis=0)
    chosen: list[int] = []
    left = target
    while len(chosen) < 8:
        score = np.abs(rows @ left) / np.linalg.norm(rows, axis=1)
        score[chosen] = -1
        chosen.append(int(score.argmax()))
        weight = np.linalg.lstsq(rows[chosen].T, target, rcond=None)[0]
        left = target - rows[chosen].T @ weight
    assert list(matching_pursuit(rows))[:8] == chosen


def test_greedy_orders_are_whole() -> None:
    rows = unit_rows(12, 3, 0)
    rows[5] = rows[2]  # equal directions, and a zero row, must not stop them
    rows[7] = 0
    for order in (k_centre, facility, matching_pursuit):
        assert sorted(order(rows)) == list(range(12))


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arms")
    rows, _ = lessons([40, 20], dims=8, noise=0.6)
    rows *= np.random.default_rng(0).uniform(0.5, 2, 60)[:, None]
    status, ids = np.zeros(60), make_ids(np.arange(60))
    status[50], ids[50] = DUPLICATE, ids[3]
    write_signatures(folder / "s.zarr", rows, ids=ids, status=status)
    cluster(folder / "s.zarr", folder / "c.zarr", clusters=2)
    return folder


def rows_of(folder: Path, tmp_path: Path, **settings: object) -> list[int]:
    select(folder / "c.zarr", tmp_path / "s.jsonl", **settings)  # type: ignore[arg-type]
    return read_selection(tmp_path / "s.jsonl").row.tolist()


def test_loss(mapped: Path, tmp_path: Path) -> None:
    # Losses ascend with the row; row 50 only repeats row 3.
    expected = [row for row in range(60) if row != 50]
    assert rows_of(mapped, tmp_path, method="loss", count=10) == expected[-10:]
    assert rows_of(mapped, tmp_path, method="loss-mid", count=9) == expected[25:34]
    assert 50 in rows_of(mapped, tmp_path, method="loss", count=60)


def test_norm(mapped: Path, tmp_path: Path) -> None:
    norm = Clusters.open(mapped / "c.zarr").column("norm").copy()
    norm[50] = -1
    expected = sorted(np.argsort(-norm)[:7].tolist())
    assert rows_of(mapped, tmp_path, method="norm", count=7) == expected


def centred(mapped: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows by ascending id without the duplicate, their centred directions, and their labels."""
    import zarr

    clusters = Clusters.open(mapped / "c.zarr")
    ids = [bytes(row) for row in clusters.column("example_id")]
    rows = np.array(sorted((row for row in range(60) if row != 50), key=lambda row: ids[row]))
    signature = zarr.open_group(mapped / "s.zarr", mode="r")["signature"][...]
    unit = signature[rows].astype(np.float32) - clusters.column("centre")
    return rows, unit / np.linalg.norm(unit, axis=1, keepdims=True), clusters.label[rows]


def test_k_centre_arm(mapped: Path, tmp_path: Path) -> None:
    rows, signs, _ = centred(mapped)
    expected = sorted(rows[list(k_centre(signs))[:11]].tolist())
    assert rows_of(mapped, tmp_path, method="k-centre", count=11) == expected
    everything = rows_of(mapped, tmp_path, method="k-centre", count=60)
    assert everything == list(range(60))


@pytest.mark.parametrize("method", ["facility", "tagcos"])
def test_arms_inside_clusters(mapped: Path, tmp_path: Path, method: str) -> None:
    rows, signs, label = centred(mapped)
    norm = Clusters.open(mapped / "c.zarr").column("norm")[rows]
    expected: list[int] = []
    size = Clusters.open(mapped / "c.zarr").size
    assert size.tolist() == [39, 21]  # 21 in proportion: 13.65 and 7.35
    for name, quota in enumerate([14, 7]):
        own = np.flatnonzero(label == name)
        order = (
            facility(signs[own])
            if method == "facility"
            else matching_pursuit(signs[own] * norm[own][:, None])
        )
        expected += rows[own[list(order)[:quota]]].tolist()
    assert rows_of(mapped, tmp_path, method=method, count=21) == sorted(expected)


MASK = 2**64 - 1


def shuffled(mapped: Path, seed: int) -> list[int]:
    """Rows by the SplitMix64 finaliser of the id's last half (Steele et al. 2014), in whole numbers."""

    def key(row: int) -> int:
        copy = int(row == 50)  # it repeats row 3
        low = int.from_bytes(bytes(ids[row])[8:], "big")
        value = (low + copy * 0xD1342543DE82EF95 + (seed + 1) * 0x9E3779B97F4A7C15) & MASK
        value = ((value ^ value >> 30) * 0xBF58476D1CE4E5B9) & MASK
        value = ((value ^ value >> 27) * 0x94D049BB133111EB) & MASK
        return value ^ value >> 31

    ids = Clusters.open(mapped / "c.zarr").column("example_id")
    return sorted(range(60), key=key)


def members(mapped: Path, seed: int, quotas: list[int]) -> list[int]:
    """The first rows of each cluster in that order, the repetition last."""
    label = Clusters.open(mapped / "c.zarr").label
    order = sorted(shuffled(mapped, seed), key=lambda row: row == 50)
    chosen: list[int] = []
    for name, quota in enumerate(quotas):
        chosen += [row for row in order if label[row] == name][:quota]
    return sorted(chosen)


def equal_quotas(sizes: list[int], budget: int) -> list[int]:
    """Clusters by ascending size: each takes its equal share of what is left, or all it has."""
    quotas = dict.fromkeys(range(len(sizes)), 0)
    for done, name in enumerate(sorted(quotas, key=lambda c: sizes[c])):
        quotas[name] = min(sizes[name], budget // (len(sizes) - done))
        budget -= quotas[name]
    return list(quotas.values())


def distinct(mapped: Path) -> list[int]:
    """Contents of the two clusters: a repetition is drawn on only when all contents are used up."""
    label = Clusters.open(mapped / "c.zarr").label
    return [sum(label[row] == name for row in range(60) if row != 50) for name in range(2)]


def proportional_quotas(sizes: list[int], budget: int) -> list[int]:
    """The largest remainders (Hamilton's method)."""
    exact = [Fraction(budget * size, sum(sizes)) for size in sizes]
    quotas = [int(share) for share in exact]
    for name in sorted(range(len(sizes)), key=lambda c: quotas[c] - exact[c])[
        : budget - sum(quotas)
    ]:
        quotas[name] += 1
    return quotas


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("count", [2, 7, 20, 45])
def test_random_arms(mapped: Path, tmp_path: Path, count: int, seed: int) -> None:
    given: dict[str, Any] = {"count": count, "seed": seed, "weights": True}
    first = sorted(shuffled(mapped, seed)[:count])
    assert rows_of(mapped, tmp_path, method="random", **given) == first
    assert Clusters.open(mapped / "c.zarr").size.tolist() == [39, 21]
    for method, quotas in (
        ("balanced-random", equal_quotas(distinct(mapped), count)),
        ("proportional", proportional_quotas([39, 21], count)),
    ):
        rows = rows_of(mapped, tmp_path, method=method, within="nearest", **given)
        assert rows == members(mapped, seed, quotas), method
        selection = read_selection(tmp_path / "s.jsonl")
        share = np.array([39, 21]) / 60
        expected = [share[c] / (quotas[c] / count) for c in selection.cluster]
        assert selection.weight.tolist() == pytest.approx(expected)


def test_all(mapped: Path, tmp_path: Path) -> None:
    assert rows_of(mapped, tmp_path, method="all", weights=True) == list(range(60))
    assert set(read_selection(tmp_path / "s.jsonl").weight.tolist()) == {1.0}


@pytest.fixture
def of_kind(mapped: Path, tmp_path: Path) -> Any:
    """The same map, as if its signatures were of another kind."""

    def make(kind: str) -> Path:
        shutil.copytree(mapped / "c.zarr", tmp_path / kind / "c.zarr")
        blocks.open_writable(tmp_path / kind / "c.zarr").attrs["space"] = {"kind": kind}
        return tmp_path / kind

    return make


@pytest.mark.parametrize("count", [3, 20, 45])
def test_s2l(mapped: Path, of_kind: Any, tmp_path: Path, count: int) -> None:
    rows = rows_of(of_kind("trajectory"), tmp_path, method="s2l", count=count, weights=True)
    assert rows == members(mapped, 0, equal_quotas(distinct(mapped), count))
    assert set(read_selection(tmp_path / "s.jsonl").weight.tolist()) == {1.0}


@pytest.mark.parametrize("count", [3, 20, 45, 60])
def test_embedding(mapped: Path, of_kind: Any, tmp_path: Path, count: int) -> None:
    given: dict[str, Any] = {"method": "embedding", "count": count, "weights": True}
    rows = rows_of(of_kind("embedding"), tmp_path, **given)
    similarity = Clusters.open(mapped / "c.zarr").column("similarity")
    order = sorted(range(60), key=lambda row: (row == 50, similarity[row]))
    assert rows == sorted(order[:count])
    assert set(read_selection(tmp_path / "s.jsonl").weight.tolist()) == {1.0}


def test_maps_of_the_wrong_kind(mapped: Path, of_kind: Any, tmp_path: Path) -> None:
    with pytest.raises(ArtifactError) as error:
        rows_of(mapped, tmp_path, method="s2l", count=9)
    assert str(error.value) == (
        "--method s2l needs a map of signatures of the kind trajectory, and "
        f"{mapped / 'c.zarr'} is one of the kind unknown; make one with `cluster-cli score DATA "
        "--model MODEL --kind trajectory --checkpoint EARLY --checkpoint LATE -o trajectory.zarr` "
        "and `cluster-cli cluster trajectory.zarr -o trajectory-clusters.zarr`"
    )
    with pytest.raises(ArtifactError) as error:
        rows_of(of_kind("gradient"), tmp_path, method="embedding", count=9)
    assert str(error.value) == (
        "--method embedding needs a map of signatures of the kind embedding, and "
        f"{tmp_path / 'gradient' / 'c.zarr'} is one of the kind gradient; make one with "
        "`cluster-cli score DATA --model MODEL --kind embedding -o embedding.zarr` and "
        "`cluster-cli cluster embedding.zarr -o embedding-clusters.zarr`"
    )


@pytest.mark.parametrize("method", ["k-centre", "facility", "tagcos"])
def test_greedy_arms_build_on_what_must_be_included(
    mapped: Path, tmp_path: Path, method: str
) -> None:
    free = rows_of(mapped, tmp_path, method=method, count=15)
    (tmp_path / "keep.txt").write_text("\n".join(map(str, free[3:9])))
    kept = rows_of(mapped, tmp_path, method=method, count=15, must_include=tmp_path / "keep.txt")
    assert set(free[3:9]) <= set(kept)
    (tmp_path / "keep.txt").write_text("50\n")  # the row without a signature of its own
    kept = rows_of(mapped, tmp_path, method=method, count=15, must_include=tmp_path / "keep.txt")
    assert 50 in kept
    assert 3 not in kept


def test_diverse_members(mapped: Path, tmp_path: Path) -> None:
    rows, signs, label = centred(mapped)
    expected: list[int] = []
    for name in range(2):
        own = np.flatnonzero(label == name)
        expected += rows[own[list(k_centre(signs[own]))[:5]]].tolist()
    given = PUBLISHED | {"within": "diverse", "trim": 0.0}
    assert rows_of(mapped, tmp_path, count=10, **given) == sorted(expected)
    selection = read_selection(tmp_path / "s.jsonl")
    assert selection.weight.sum() == pytest.approx(10)


def test_diverse_members_of_a_large_cluster_are_taken_by_turns(
    mapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts of at most 15: a cluster of 38 contents has three, and each gives the start of its order."""
    monkeypatch.setattr("stages.select.arms.PART", 15)
    rows, signs, label = centred(mapped)
    pool = read_pool(Clusters.open(mapped / "c.zarr"))
    key = dict(zip(pool.row.tolist(), pool.random_order(0).tolist(), strict=True))
    expected: list[int] = []
    for name, quota in enumerate([14, 7]):
        own = np.flatnonzero(label == name)
        shuffled = own[np.argsort([key[row] for row in rows[own].tolist()])]
        parts = np.array_split(shuffled, -(-len(own) // 15))
        assert len(parts) == 3 - name
        orders = [part[list(k_centre(signs[part]))] for part in parts]
        turns = [order[at] for at in range(13) for order in orders if at < len(order)]
        expected += rows[turns[:quota]].tolist()
    given = {"quota": "proportional", "within": "diverse", "trim": 0.0}
    assert rows_of(mapped, tmp_path, count=21, **given) == sorted(expected)


def test_outliers_come_last_in_diverse_orders(mapped: Path, tmp_path: Path) -> None:
    clusters = Clusters.open(mapped / "c.zarr")
    pool = read_pool(clusters)
    odd = set(pool.row[pool.distinct & outliers(pool, 0.2)].tolist())
    given = {"quota": "proportional", "within": "diverse", "trim": 0.2}
    usual = int(pool.distinct.sum()) - len(odd)
    assert 5 < len(odd) < 30
    assert not odd & set(rows_of(mapped, tmp_path, count=usual - 10, **given))


def test_folded_rows_keep_their_cosines() -> None:
    """512 of 4,096 numbers: an error of about 1 / sqrt(512) = 0.044 (Charikar et al. 2002)."""
    rows = unit(unit_rows(60, 4_096, 0) + unit_rows(1, 4_096, 1))  # cosines around one half
    folded = Fold(4_096, 512)(rows)
    assert folded.shape == (60, 512)
    assert np.linalg.norm(folded, axis=1) == pytest.approx(1, abs=1e-5)
    error = (folded @ folded.T - rows @ rows.T)[np.triu_indices(60, 1)]
    assert 0.02 < error.std() < 0.06
    assert np.array_equal(Fold(5, 2)(np.zeros((1, 5), dtype=np.float32)), np.zeros((1, 2)))


def test_missing_and_other_signatures(mapped: Path, tmp_path: Path) -> None:
    path = write_clusters(tmp_path / "c.zarr", np.zeros(4))
    header = path / "zarr.json"
    text = header.read_text()
    entry = '"inputs": [{"path": "gone.zarr", "sha256": "x", "rows": 4}]'
    header.write_text(text.replace('"inputs": []', entry))
    assert entry in header.read_text()
    with pytest.raises(ArtifactError) as error:
        select(path, tmp_path / "s.jsonl", method="k-centre", count=2)
    assert str(error.value) == (
        f"this choice needs the signatures of {path}, which are not at {tmp_path / 'gone.zarr'}; "
        "say where they are with --signatures"
    )
    with pytest.raises(ArtifactError) as error:
        select(
            path,
            tmp_path / "s.jsonl",
            method="k-centre",
            count=2,
            signatures=mapped / "s.zarr",
        )
    assert str(error.value) == (
        f"{mapped / 's.zarr'} are not the signatures {path} was made from; "
        "cluster them again, or name the right ones with --signatures"
    )
