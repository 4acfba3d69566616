"""The select stage: budgets, weights, and which examples are chosen."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.clusters import Clusters
from formats.errors import ArtifactError, SettingError
from formats.selection import Selection, read_selection
from formats.signatures import DUPLICATE
from stages.select import arms, methods, select
from stages.select.members import outliers, preference
from stages.select.pool import read_pool
from stages.select.quotas import QUOTAS
from stages.select.settings import Settings
from tests.stages.select.pools import make_pool
from tests.synthetic import PUBLISHED, Notes, make_ids, write_clusters

LABEL = np.repeat([0, 1, 2], [60, 30, 10])


def run(folder: Path, label: np.ndarray = LABEL, **settings_: Any) -> Selection:
    made = {name: settings_.pop(name) for name in list(settings_) if name in _MAP}
    path = folder / "c.zarr"
    if not path.exists():
        write_clusters(path, label, **made)
    select(path, folder / "s.jsonl", **settings_)
    return read_selection(folder / "s.jsonl")


_MAP = ("similarity", "tokens_", "ids", "status", "norm", "loss", "spread")


@pytest.mark.parametrize(
    ("sizes", "count", "expected"),
    [
        # Roots 8, 4 and 2 of 14: one and a half, then two of each.
        ([64, 16, 4], 21, [12, 6, 3]),
        ([64, 16, 4], 28, [16, 8, 4]),
        # The third has four; the others share 38 as 8 to 4: 25.33 and 12.67.
        ([64, 16, 4], 42, [25, 13, 4]),
        # Roots 7.746, 5.477 and 3.162 of 16.385: 14.18, 10.03 and 5.79.
        ([60, 30, 10], 30, [14, 10, 6]),
        # Root 10 and four times 1 of 14: 3.57 and 0.36, but nobody gives less than one.
        ([100, 1, 1, 1, 1], 5, [1, 1, 1, 1, 1]),
    ],
)
def test_the_defaults(tmp_path: Path, sizes: list[int], count: int, expected: list[int]) -> None:
    """Quotas by the square root of the size, members at random, every example counts the same."""
    chosen = run(tmp_path, np.repeat(np.arange(len(sizes)), sizes), count=count)
    assert np.bincount(chosen.cluster).tolist() == expected
    assert set(chosen.weight.tolist()) == {1.0}
    assert chosen.header.stats["effective_sample_size"] == count
    said = {"quota": "sqrt", "within": "random", "trim": 0.0, "weights": False}
    assert {name: chosen.header.params[name] for name in said} == said
    assert run(tmp_path, count=count, **said).header.key == chosen.header.key


def test_random_members_have_nothing_to_do_with_similarity_and_follow_the_seed(
    tmp_path: Path,
) -> None:
    """In 200 draws every row of a cluster comes as often as the others."""
    path = write_clusters(tmp_path / "c.zarr", LABEL, similarity=np.linspace(0.2, 0.9, 100))
    clusters = Clusters.open(path)
    pool, times = read_pool(clusters), np.zeros(100)
    for seed in range(200):
        choose = methods.by_cluster(clusters, pool, Settings(trim=0, seed=seed))
        times[pool.row[choose(30)]] += 1
    for cluster, quota in enumerate([14, 10, 6]):  # as above
        rate = quota / (cluster == LABEL).sum()
        deviation = np.sqrt(200 * rate * (1 - rate))
        assert times[cluster == LABEL].sum() == 200 * quota
        assert np.abs(times[cluster == LABEL] - 200 * rate).max() < 5 * deviation


def test_equal_quotas_and_weights_that_restore_shares(tmp_path: Path) -> None:
    chosen = run(tmp_path, fraction=0.3, **PUBLISHED)
    assert np.bincount(chosen.cluster).tolist() == [10, 10, 10]
    assert chosen.weight.mean() == pytest.approx(1, abs=1e-12)
    for cluster, share in enumerate([0.6, 0.3, 0.1]):
        of_cluster = chosen.weight[chosen.cluster == cluster].sum() / 30
        assert of_cluster == pytest.approx(share, abs=1e-12)


def test_header(tmp_path: Path) -> None:
    chosen = run(tmp_path, fraction=0.3, **PUBLISHED)
    stats = chosen.header.stats
    assert stats == {
        "rows": 100,
        "clusterable": 100,
        "selected": 30,
        "fraction": 0.3,
        "repeated": 0,
        "clusters": 3,
        "clusters_represented": 3,
        "effective_sample_size": round(30**2 / (10 * (1.8**2 + 0.9**2 + 0.3**2)), 3),
        "ess_fraction": round(30 / (10 * (1.8**2 + 0.9**2 + 0.3**2)), 6),
        "moved": 0.0,
        "largest_weight": 1.8,
        "tokens": 600,
        "tokens_total": 2000,
        "tokens_fraction": 0.3,
    }
    assert chosen.header.extra["rendering"] == {"max_length": 64}
    assert chosen.header.inputs[0]["path"] == "c.zarr"


def test_a_small_cluster_gives_all_it_has(tmp_path: Path) -> None:
    chosen = run(tmp_path, count=70, quota="equal")
    assert np.bincount(chosen.cluster).tolist() == [30, 30, 10]


def test_farthest_first(tmp_path: Path) -> None:
    similarity = np.linspace(0.2, 0.9, 100)
    chosen = run(tmp_path, similarity=similarity, count=9, trim=0, **PUBLISHED)
    assert chosen.row.tolist() == [0, 1, 2, 60, 61, 62, 90, 91, 92]
    assert chosen.similarity == pytest.approx(similarity[chosen.row], abs=1e-6)


def test_nearest_first(tmp_path: Path) -> None:
    chosen = run(tmp_path, similarity=np.linspace(0.2, 0.9, 100), count=3, trim=0, within="nearest")
    assert chosen.row.tolist() == [59, 89, 99]


@pytest.mark.parametrize("within", ["farthest", "random", "nearest"])
def test_outliers_are_avoided_where_there_are_others(tmp_path: Path, within: str) -> None:
    similarity, norm = np.full(100, 0.5), np.ones(100)
    similarity[[3, 4, 95]] = [0.01, 0.02, 0.03]
    norm[60] = 50
    path = write_clusters(tmp_path / "c.zarr", LABEL, similarity=similarity, norm=norm)
    pool = read_pool(Clusters.open(path))
    assert set(pool.row[outliers(pool, 0.03)].tolist()) == {3, 4, 95, 60}
    assert not outliers(pool, 0).any()
    select(path, tmp_path / "s.jsonl", count=97, trim=0.03, quota="equal", within=within)
    left_out = set(range(100)) - set(read_selection(tmp_path / "s.jsonl").row.tolist())
    assert len(left_out) == 3
    assert {3, 4} < left_out  # of the largest cluster; the others had to give all


def test_duplicates_count_in_shares_and_are_taken_last(tmp_path: Path) -> None:
    ids = make_ids(np.array([0, 1, 2, 0, 0, 0, 3, 4]))
    status = np.array([0, 0, 0, DUPLICATE, DUPLICATE, DUPLICATE, 0, 0])
    label = np.array([0, 0, 0, 0, 0, 0, 1, 1])
    chosen = run(tmp_path, label, ids=ids, status=status, count=4, **PUBLISHED)
    assert chosen.row.tolist() in ([0, 1, 6, 7], [0, 2, 6, 7], [1, 2, 6, 7])
    assert chosen.weight.tolist() == [1.5, 1.5, 0.5, 0.5]  # six rows of eight, two of eight
    chosen = run(tmp_path, count=5, **PUBLISHED)
    assert chosen.row.tolist() == [0, 1, 2, 6, 7]
    chosen = run(tmp_path, count=7, **PUBLISHED)
    assert (chosen.row[:3].tolist(), len(chosen)) == ([0, 1, 2], 7)
    assert chosen.header.stats["repeated"] == 2


def test_no_weights(tmp_path: Path) -> None:
    unweighted = PUBLISHED | {"weights": False}
    assert set(run(tmp_path, fraction=0.3, **unweighted).weight.tolist()) == {1.0}


def test_all_keeps_everything(tmp_path: Path) -> None:
    label = np.where(np.arange(100) % 10 == 0, -1, LABEL)
    chosen = run(tmp_path, label, method="all", weights=True)
    assert chosen.row.tolist() == [row for row in range(100) if row % 10]
    assert set(chosen.weight.tolist()) == {1.0}
    assert chosen.header.stats["clusterable"] == 90


def test_random_is_uniform_and_seeded(tmp_path: Path) -> None:
    first = run(tmp_path, method="random", count=40, weights=True)  # it looks at no cluster
    assert set(first.weight.tolist()) == {1.0}
    again = run(tmp_path, method="random", count=40, weights=True, force=True)
    assert np.array_equal(first.row, again.row)
    other = run(tmp_path, method="random", count=40, seed=1)
    assert not np.array_equal(first.row, other.row)


def test_random_draws_rows_uniformly() -> None:
    pool = make_pool(LABEL, np.where(LABEL % 2 == 0, 3, 1))
    draw = np.array([arms.at_random(None, pool, Settings(seed=s))(65) for s in range(400)])
    times = np.bincount(draw.ravel(), minlength=len(pool))
    expected = 400 * 65 / len(pool)
    assert np.abs(times - expected).max() < 5 * np.sqrt(expected)  # five standard deviations


def test_same_examples_for_shuffled_rows(tmp_path: Path) -> None:
    similarity = np.random.default_rng(1).uniform(0, 1, 100).round(1)  # many ties
    ids = make_ids(np.arange(100))
    order = np.random.default_rng(0).permutation(100)
    write_clusters(tmp_path / "c.zarr", LABEL, similarity=similarity, ids=ids)
    write_clusters(tmp_path / "d.zarr", LABEL[order], similarity=similarity[order], ids=ids[order])
    for settings_ in (
        PUBLISHED,
        {"within": "random"},
        {"method": "random"},
        {"quota": "sqrt", "weights": True},
    ):
        found = []
        for name in "cd":
            select(tmp_path / f"{name}.zarr", tmp_path / f"{name}.jsonl", count=37, **settings_)
            selection = read_selection(tmp_path / f"{name}.jsonl")
            found.append(sorted(zip(selection.id.tolist(), selection.weight.tolist(), strict=True)))
        assert found[0] == found[1]


def test_token_budget(tmp_path: Path) -> None:
    tokens = np.arange(100) + 1
    path = write_clusters(tmp_path / "c.zarr", LABEL, tokens=tokens)
    for budget in (60, 700, 4000, 5050, 9999):
        select(path, tmp_path / "s.jsonl", tokens=budget)
        chosen = read_selection(tmp_path / "s.jsonl")
        taken = int(chosen.tokens.sum())
        assert taken <= budget
        assert taken > budget - 200 or len(chosen) == 100
    with pytest.raises(SettingError) as error:
        select(path, tmp_path / "t.jsonl", tokens=3)
    assert str(error.value) == (
        "--tokens 3 holds no example; the shortest has 1 tokens; give more tokens"
    ) or "holds no example" in str(error.value)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "no budget is given; add --fraction 0.31, --count N or --tokens N"),
        (
            {"fraction": 0.5, "count": 3},
            "--fraction 0.5 and --count 3 are both given; give one budget",
        ),
        ({"fraction": 1.5}, "--fraction is 1.5; give a number above 0, at most 1, or auto"),
        ({"fraction": 0.0}, "--fraction is 0.0; give a number above 0, at most 1, or auto"),
        ({"count": 0}, "--count is 0; give a positive number"),
        ({"tokens": -1}, "--tokens is -1; give a positive number"),
        ({"count": 101}, "--count 101 is more than the 100 clustered rows; give at most 100"),
        (
            {"count": 5, "method": "best"},
            f"there is no method 'best'; use one of {', '.join(methods.METHODS)}",
        ),
        (
            {"count": 5, "quota": "fair"},
            f"there is no quota 'fair'; use one of {', '.join(QUOTAS)}, or a number from 0 to 1",
        ),
        ({"count": 5, "trim": 0.5}, "--trim is 0.5; give a fraction from 0 to below 0.5"),
    ],
)
def test_bad_settings(tmp_path: Path, arguments: dict[str, Any], message: str) -> None:
    path = write_clusters(tmp_path / "c.zarr", LABEL)
    with pytest.raises(SettingError) as error:
        select(path, tmp_path / "s.jsonl", **arguments)
    assert str(error.value) == message
    assert not (tmp_path / "s.jsonl").exists()


@pytest.mark.parametrize(
    ("settings_", "moved", "said"),
    [
        # 60, 30 and 10 % of the rows; 14, 10 and 6 of 30 examples: 13.3 and 3.3 points less, 10 more.
        ({}, 0.133333, True),
        ({"quota": "equal"}, 0.266667, True),
        ({"quota": "equal", "weights": True}, 0.0, False),
        ({"quota": "proportional"}, 0.0, False),
        # Nobody asks highest loss for a mix: it is recorded, and there is nothing to restore.
        ({"method": "loss"}, None, False),
    ],
)
def test_how_much_the_mix_changes(
    tmp_path: Path, settings_: dict[str, Any], moved: float | None, said: bool
) -> None:
    notes = Notes()
    chosen = run(tmp_path, count=30, reporter=notes, loss=np.arange(100), **settings_)
    if moved is not None:
        assert chosen.header.stats["moved"] == pytest.approx(moved, abs=1e-6)
    line = (
        f"the mix changes: {chosen.header.stats['moved']:.0%} of the weight is on other clusters than "
        "in the data, as the quotas ask; --weights restores it"
    )
    assert (line in notes.messages) == said


def test_nothing_clustered(tmp_path: Path) -> None:
    path = write_clusters(tmp_path / "c.zarr", np.array([0, -1]))
    import zarr

    zarr.open_group(path, mode="r+")["label"][...] = np.array([-1, -1], dtype=np.int32)
    with pytest.raises(ArtifactError) as error:
        select(path, tmp_path / "s.jsonl", fraction=0.5)
    assert str(error.value) == f"{path} has no clustered row: nothing to select"


def test_warnings(tmp_path: Path) -> None:
    label = np.repeat(np.arange(6), [200, 3, 3, 2, 2, 1])
    path = write_clusters(tmp_path / "c.zarr", label)
    notes = Notes()
    header = select(path, tmp_path / "s.jsonl", count=4, reporter=notes, **PUBLISHED)
    assert notes.warnings[0] == (
        "2 of 6 clusters are not represented: the budget of 4 examples is too small, "
        "or the method does not look at clusters"
    )
    assert notes.warnings[1].startswith("the weights are very unequal: 4 examples count like 1 (")
    chosen = read_selection(tmp_path / "s.jsonl")
    assert chosen.cluster.tolist() == [0, 1, 2, 3]  # the largest
    assert chosen.weight.mean() == pytest.approx(1)
    assert header.stats["ess_fraction"] < 0.6


def test_stdout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_clusters(tmp_path / "c.zarr", LABEL)
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stdout", stream)
    select(path, "-", count=5)
    header, *examples = map(json.loads, stream.getvalue().splitlines())
    assert len(examples) == header["stats"]["selected"] == 5
    assert header["inputs"][0]["path"] == str(path)
    assert header["dataset"]["sources"][0]["path"] == str(tmp_path / "data.jsonl")
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.zarr"]


def test_up_to_date_and_force(tmp_path: Path) -> None:
    path, output = write_clusters(tmp_path / "c.zarr", LABEL), tmp_path / "s.jsonl"
    first = select(path, output, count=5)
    inode = output.stat().st_ino
    notes = Notes()
    assert select(path, output, count=5, reporter=notes).key == first.key
    assert notes.messages == [f"{output} is up to date"]
    assert output.stat().st_ino == inode
    select(path, output, count=5, force=True)
    assert output.stat().st_ino != inode
    assert select(path, output, count=6).key != first.key


def test_preference_knows_its_names() -> None:
    with pytest.raises(SettingError, match="there is no order 'best'; use one of farthest"):
        preference(make_pool(LABEL, np.ones(100, int)), "best", 0.01, 0)
