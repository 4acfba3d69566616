"""--target: what is aligned with a few wanted examples (Xia et al. 2024)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats import artifacts, blocks
from formats.clusters import Clusters
from formats.errors import ArtifactError, ClusterCliError, SettingError
from formats.selection import Selection, read_selection
from formats.signatures import EMPTY_RESPONSE, Signatures
from stages.select import select
from tests.stages.select.sourced import SIZES, contents, write_map, write_target
from tests.synthetic import Notes, lessons, write_signatures

LESSON = lessons(list(SIZES), dims=24, noise=0.9, seed=0)[1]


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("target")
    path = write_map(folder, np.arange(230))
    write_target(folder / "wanted.zarr", lesson=2)
    both = np.vstack([contents()[LESSON == 2][:3], contents()[LESSON == 0][:9]])
    write_signatures(folder / "both.zarr", both)
    return path


def run(mapped: Path, tmp_path: Path, target: str = "wanted.zarr", **given: Any) -> Selection:
    select(mapped, tmp_path / "s.jsonl", target=mapped.parent / target, **given)
    return read_selection(tmp_path / "s.jsonl")


def naive(mapped: Path, target: str) -> tuple[list[int], list[float]]:
    """How many wanted examples each cluster has, and every row's alignment: by the docstring, in loops."""
    clusters = Clusters.open(mapped)
    centre, centroid = clusters.column("centre"), clusters.column("centroid")

    def unit(row: np.ndarray) -> np.ndarray:
        row = row.astype(np.float64) - centre
        return row / np.sqrt(row @ row)

    wanted: dict[int, list[np.ndarray]] = {}
    for row in Signatures.open(mapped.parent / target).column("signature"):
        nearest = max(range(len(centroid)), key=lambda c: unit(row) @ centroid[c])
        wanted.setdefault(nearest, []).append(unit(row))
    signature = Signatures.open(mapped.parent / "s.zarr").column("signature")
    alignment = []
    for row in range(clusters.rows):
        own = unit(signature[row if row < 210 else row - 210])  # the last rows repeat the first
        means = [sum(own @ t for t in group) / len(group) for group in wanted.values()]
        alignment.append(round(float(max(means)), 5))
    return [len(wanted.get(c, [])) for c in range(len(centroid))], alignment


def test_one_lesson_is_wanted_and_found(mapped: Path, tmp_path: Path) -> None:
    notes = Notes()
    chosen = run(mapped, tmp_path, count=20, weights=True, reporter=notes)
    assert set(LESSON[chosen.row].tolist()) == {2}
    balanced = select(mapped, tmp_path / "b.jsonl", count=20, weights=True)
    assert "target" not in balanced.stats
    assert set(chosen.weight.tolist()) == {1.0}
    aim = chosen.header.stats["target"]
    assert aim["examples"] == 8
    assert aim["alignment"] > aim["alignment_of_all"] + 0.3
    assert notes.warnings == []
    assert notes.messages[0].startswith("aimed at 8 wanted examples in ")


@pytest.mark.parametrize("target", ["wanted.zarr", "both.zarr"])
@pytest.mark.parametrize("count", [1, 12, 40, 120, 205, 225])
def test_against_a_naive_reference(mapped: Path, tmp_path: Path, target: str, count: int) -> None:
    chosen = run(mapped, tmp_path, target, count=count, trim=0)
    clusters = Clusters.open(mapped)
    wanted, alignment = naive(mapped, target)
    label, distinct = clusters.label, clusters.distinct
    taken = np.bincount(label[chosen.row], minlength=clusters.clusters)
    capacity = [int((distinct & (label == c)).sum()) for c in range(clusters.clusters)]
    inside = sum(capacity[c] for c in range(clusters.clusters) if wanted[c])
    if count <= inside:
        assert all(wanted[c] for c in np.flatnonzero(taken))
    for c in range(clusters.clusters):
        # In every cluster the best aligned are taken, repetitions only after all others.
        own = chosen.row[chosen.cluster == c]
        worst = min((alignment[row] for row in own), default=9)
        left = np.setdiff1d(np.flatnonzero(distinct & (label == c)), own)
        assert all(alignment[row] <= worst + 1e-5 for row in left)
        exact = count * wanted[c] / sum(wanted)
        if count <= inside and all(
            count * w / sum(wanted) <= n for w, n in zip(wanted, capacity, strict=True)
        ):
            assert abs(taken[c] - exact) < 1
    assert (~distinct[chosen.row]).sum() == max(0, count - 210)
    found = chosen.header.stats["target"]
    assert found["alignment"] == pytest.approx(
        np.mean([alignment[r] for r in chosen.row]), abs=1e-4
    )
    assert found["alignment_of_all"] == pytest.approx(np.mean(alignment), abs=1e-4)


def test_what_must_be_kept_is_kept(mapped: Path, tmp_path: Path) -> None:
    far = np.flatnonzero(LESSON == 1)[:3]
    (tmp_path / "keep.txt").write_text("\n".join(map(str, far)))
    chosen = run(mapped, tmp_path, count=30, must_include=tmp_path / "keep.txt", min_per_cluster=1)
    assert set(far.tolist()) <= set(chosen.row.tolist())
    assert len(set(chosen.cluster.tolist())) == Clusters.open(mapped).clusters


def said(mapped: Path, tmp_path: Path, **given: Any) -> str:
    with pytest.raises(ClusterCliError) as error:
        run(mapped, tmp_path, **({"count": 20} | given))
    return str(error.value)


def test_another_signature_space_is_named(mapped: Path, tmp_path: Path) -> None:
    path = write_target(mapped.parent / "other.zarr", lesson=1, space_id="other")
    header = artifacts.read_header(path, "signatures")
    header.extra["space"] |= {"rank": 8, "model": "m"}
    blocks.seal(path, header.to_json())
    with pytest.raises(ArtifactError) as error:
        run(mapped, tmp_path, "other.zarr", count=20)
    assert str(error.value) == (
        f"{path} and {mapped} are not of the same signature space (different: model, rank); "
        "score the wanted examples with the map's model and settings"
    )
    assert error.value.data["differing"] == ["model", "rank"]


def test_nothing_to_aim_at(mapped: Path, tmp_path: Path) -> None:
    path = write_signatures(
        mapped.parent / "empty.zarr", np.ones((2, 24)), status=np.full(2, EMPTY_RESPONSE)
    )
    assert said(mapped, tmp_path, target="empty.zarr") == (
        f"{path} has no usable row: nothing to aim at"
    )


def test_settings_that_contradict_a_target(mapped: Path, tmp_path: Path) -> None:
    for given, message in (
        (
            {"method": "random"},
            "--target and --method random are both given; drop one of the two",
        ),
        (
            {"stratify": "source"},
            "--target changes the mix, and --stratify source keeps it; drop one of the two",
        ),
        (
            {"quota": "equal"},
            "--target sets its own quotas and order, and --quota equal is given; drop --quota",
        ),
        (
            {"within": "nearest"},
            "--target sets its own quotas and order, and --within nearest is given; drop --within",
        ),
    ):
        with pytest.raises(SettingError) as error:
            run(mapped, tmp_path, count=20, **given)
        assert str(error.value) == message


def test_the_target_is_part_of_the_key(mapped: Path, tmp_path: Path) -> None:
    headers = [
        run(mapped, tmp_path, name, count=20).header for name in ("wanted.zarr", "both.zarr")
    ]
    headers.append(select(mapped, tmp_path / "s.jsonl", count=20))
    assert len({header.key for header in headers}) == 3
    wanted = Signatures.open(mapped.parent / "wanted.zarr").header.key
    assert [entry["sha256"] for entry in headers[0].inputs][1:] == [wanted]
    assert [entry["rows"] for entry in headers[0].inputs] == [230, 8]
