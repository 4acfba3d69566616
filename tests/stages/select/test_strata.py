"""--stratify: quotas within each source, and weights that keep the mix of both."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.clusters import Clusters
from formats.errors import ArtifactError, ClusterCliError, DataChangedError, SettingError
from formats.selection import Selection, read_selection
from stages.select import select
from stages.select.quotas import quotas
from stages.select.settings import Settings
from stages.select.weights import share_weights
from tests.stages.select.pools import FakeMap, make_pool
from tests.stages.select.sourced import SOURCES, write_map
from tests.synthetic import PUBLISHED, write_clusters


@pytest.fixture(scope="module")
def mapped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_map(tmp_path_factory.mktemp("strata"), np.arange(230))


def run(mapped: Path, tmp_path: Path, **given: Any) -> Selection:
    select(mapped, tmp_path / "s.jsonl", **given)
    return read_selection(tmp_path / "s.jsonl")


def table(mapped: Path, selection: Selection | None = None) -> np.ndarray:
    """(sources, clusters) rows of the data, or weights of the selection."""
    lines = [json.loads(line) for line in (mapped.parent / "data.jsonl").open()]
    label = Clusters.open(mapped).label
    found = np.zeros((len(SOURCES), label.max() + 1))
    if selection is None:
        for row, line in enumerate(lines):
            found[SOURCES.index(line["source"]), label[row]] += 1
    else:
        for row, weight in zip(selection.row.tolist(), selection.weight.tolist(), strict=True):
            found[SOURCES.index(lines[row]["source"]), label[row]] += weight
    return found


def test_the_budget_follows_the_sources_and_weights_keep_both_mixes(
    mapped: Path, tmp_path: Path
) -> None:
    chosen = run(mapped, tmp_path, count=90, stratify="source", **PUBLISHED)
    rows, weights = table(mapped), table(mapped, chosen)
    assert np.abs(weights / 90 - rows / 230)[weights > 0].max() < 1e-9
    assert (weights[rows > 0] > 0).all()
    strata = chosen.header.stats["strata"]
    assert list(strata) == sorted(SOURCES)
    for name, share in zip(SOURCES, rows.sum(axis=1) / 230, strict=True):
        assert strata[name]["share"] == pytest.approx(share, abs=1e-6)
        assert strata[name]["weight"] == pytest.approx(share, abs=1e-6)
        assert abs(strata[name]["selected"] - 90 * share) < 1  # the largest remainders


@pytest.mark.parametrize("given", [{}, PUBLISHED])
def test_inside_a_source_quotas_are_those_of_the_source_alone(
    mapped: Path, tmp_path: Path, given: dict[str, Any]
) -> None:
    """Excluding all other sources leaves the same choice at the same budget."""
    given = {"trim": 0} | given
    chosen = run(mapped, tmp_path, count=90, stratify="source", **given)
    lines = [json.loads(line) for line in (mapped.parent / "data.jsonl").open()]
    for name in SOURCES:
        own = [row for row in chosen.row.tolist() if lines[row]["source"] == name]
        others = [row for row, line in enumerate(lines) if line["source"] != name]
        (tmp_path / "others.txt").write_text("\n".join(map(str, others)))
        alone = run(mapped, tmp_path, count=len(own), exclude=tmp_path / "others.txt", **given)
        assert alone.row.tolist() == own


@pytest.mark.parametrize("method", ["proportional", "facility", "tagcos"])
def test_methods_with_quotas_can_be_stratified(mapped: Path, tmp_path: Path, method: str) -> None:
    chosen = run(mapped, tmp_path, count=80, stratify="source", method=method, weights=True)
    assert np.abs(
        table(mapped, chosen).sum(axis=0) / 80 - table(mapped).sum(axis=0) / 230
    ).max() < (1e-9)


def test_other_plain_values_are_strata_too(tmp_path: Path) -> None:
    path = write_map(tmp_path / "m", np.arange(230))
    lines = [json.loads(line) for line in (tmp_path / "m/data.jsonl").open()]
    assert len({line["page"] for line in lines}) == 210
    chosen = run(path, tmp_path, count=220, stratify="page", weights=True)
    assert len(chosen.header.stats["strata"]) == 210
    page = chosen.header.stats["strata"]["19"]  # two rows of one content
    assert page["share"] == page["weight"] == round(2 / 230, 6)


def test_an_unrepresented_stratum_does_not_cost_its_cluster_the_share() -> None:
    """Twelve contents in two clusters and three strata, and three examples: by hand."""
    pool = make_pool([0, 0, 0, 1, 1, 1, 0, 0, 0, 0, 0, 0], [1] * 12, strata=3)
    chosen = np.array([0, 1, 3])  # strata 0, 1, 0
    weight = share_weights(pool, chosen)
    # Cluster 0 has 9 of 12 rows, 3 in each stratum; cluster 1 has one in each.
    assert weight == pytest.approx([4.5 / 12 * 3, 4.5 / 12 * 3, 3 / 12 * 3])


def test_every_cluster_is_kept_although_strata_know_nothing_of_each_other() -> None:
    # Each stratum alone would spend its two examples on the two large clusters.
    label = np.repeat([0, 1, 2, 3], [20, 20, 4, 4])
    pool = make_pool(label, np.ones(48, int), strata=2)
    quota_SK = quotas(pool, Settings(), "equal", FakeMap(4).column("spread"))(4)
    assert quota_SK.sum(axis=1).tolist() == [2, 2]
    assert quota_SK.sum(axis=0).tolist() == [1, 1, 1, 1]


def said(error: type[ClusterCliError], mapped: Path, tmp_path: Path, **given: Any) -> str:
    with pytest.raises(error) as caught:
        run(mapped, tmp_path, count=20, **given)
    assert not (tmp_path / "s.jsonl").exists()
    return str(caught.value)


def test_columns_that_will_not_do(mapped: Path, tmp_path: Path) -> None:
    data = mapped.parent / "data.jsonl"
    assert said(ClusterCliError, mapped, tmp_path, stratify="sauce") == (
        f"{data}:1 has no column 'sauce'; "
        "give --stratify one of question, answer, source, page, tags"
    )
    assert said(ClusterCliError, mapped, tmp_path, stratify="tags") == (
        f"{data}:1: column 'tags' holds [\"web\"]; "
        "--stratify needs a text, a number, or true or false in every row"
    )
    assert said(SettingError, mapped, tmp_path, stratify="") == (
        "--stratify is empty; name a column of the data"
    )
    assert said(SettingError, mapped, tmp_path, stratify="source", method="loss") == (
        "--stratify sets quotas, and --method loss has none; use one of cluster, "
        "balanced-random, proportional, facility, tagcos, s2l"
    )


def test_a_column_of_too_many_values(
    mapped: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stages.select.strata.MOST", 5)
    assert said(SettingError, mapped, tmp_path, stratify="page") == (
        "--stratify page: more than 5 different values, the last one '5'; "
        "name a column that holds few"
    )


def test_data_that_are_gone_changed_or_not_known(tmp_path: Path) -> None:
    path = write_map(tmp_path / "m", np.arange(230))
    data = tmp_path / "m/data.jsonl"
    data.write_text(data.read_text() + '{"question": "more", "answer": "m"}\n')
    assert "is no longer the file that was read before" in said(
        DataChangedError, path, tmp_path, stratify="source"
    )
    data.unlink()
    assert said(ClusterCliError, path, tmp_path, stratify="source") == (
        f"the data file {data} is missing; put it back where it was"
    )
    other = write_clusters(tmp_path / "other.zarr", np.zeros(40))
    assert said(ArtifactError, other, tmp_path, stratify="source") == (
        f"{other} does not say where its data are, and --stratify reads them; start again from score"
    )


def test_the_column_is_part_of_the_key(mapped: Path, tmp_path: Path) -> None:
    found = [
        run(mapped, tmp_path, count=20, **given).header.key
        for given in ({}, {"stratify": "source"}, {"stratify": "page", "min_per_cluster": 1})
    ]
    assert len(set(found)) == 3
