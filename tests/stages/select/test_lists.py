"""--must-include, --exclude and --min-per-cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.clusters import Clusters
from formats.errors import ClusterCliError, DataError, SettingError
from formats.fingerprints import file_sha256
from formats.selection import Selection, hex_ids, read_selection
from formats.signatures import DUPLICATE, EMPTY_RESPONSE
from stages.select import select
from stages.select.methods import METHODS
from tests.synthetic import PUBLISHED, make_ids, write_clusters

# Rows 8 and 9 repeat row 0, row 7 has no answer; clusters of 7 and 2 rows.
CONTENT = np.array([0, 1, 2, 3, 4, 5, 6, 7, 0, 0])
STATUS = np.array([0, 0, 0, 0, 0, 0, 0, EMPTY_RESPONSE, DUPLICATE, DUPLICATE])
LABEL = np.array([0, 0, 0, 0, 0, 1, 1, -1, 0, 0])
IDS = make_ids(CONTENT)
NAMES = hex_ids(IDS)


@pytest.fixture
def clusters(tmp_path: Path) -> Path:
    similarity = np.linspace(0.1, 0.9, 10)
    return write_clusters(tmp_path / "c.zarr", LABEL, ids=IDS, status=STATUS, similarity=similarity)


def run(clusters: Path, **given: Any) -> Selection:
    """As published, so that it is known what would be chosen without the lists."""
    for name in ("must_include", "exclude"):
        if isinstance(text := given.get(name), str):
            given[name] = clusters.parent / f"{name}.txt"
            given[name].write_text(text)
    select(clusters, clusters.parent / "s.jsonl", **({"trim": 0} | PUBLISHED | given))
    return read_selection(clusters.parent / "s.jsonl")


def test_rows_and_ids_are_included(clusters: Path) -> None:
    # Of the first cluster rows 0 and 1 would come first, of the second row 5.
    text = f"# mine\n\n 4   # by row\n{NAMES[6].upper()}\n"
    chosen = run(clusters, count=3, must_include=text)
    assert chosen.row.tolist() == [0, 4, 6]
    assert chosen.header.stats["must_include"] == 2
    assert chosen.weight.tolist() == [7 / 9 / (2 / 3), 7 / 9 / (2 / 3), 2 / 9 / (1 / 3)]


def test_they_count_toward_the_quota_of_their_cluster(clusters: Path) -> None:
    assert run(clusters, count=4).cluster.tolist() == [0, 0, 1, 1]
    chosen = run(clusters, count=4, must_include="3\n4\n")
    assert chosen.row.tolist() == [3, 4, 5, 6]
    chosen = run(clusters, count=4, must_include="2\n3\n4\n")  # more than an equal share
    assert chosen.row.tolist() == [2, 3, 4, 5]


@pytest.mark.parametrize("method", sorted({*METHODS} - {"s2l", "k-centre", "facility", "tagcos"}))
def test_every_method_includes_them(clusters: Path, method: str) -> None:
    import zarr

    group = zarr.open_group(clusters, mode="r+")
    group.attrs["space"] = {"kind": "embedding"}
    budget = {} if method == "all" else {"count": 2}
    for given in (PUBLISHED, {"quota": "sqrt", "within": "random", "weights": False}):
        chosen = run(clusters, method=method, must_include="4\n2\n", **budget, **given)
        assert {2, 4} <= set(chosen.row.tolist())


def test_a_content_is_included_once_by_the_row_named_first(clusters: Path) -> None:
    assert run(clusters, count=2, must_include="9\n0\n8\n").row.tolist() == [5, 9]
    assert run(clusters, count=2, must_include=f"{NAMES[0]}\n9\n").row.tolist() == [0, 5]
    # The other rows of the content are now its repetitions, taken last.
    chosen = run(clusters, count=7, must_include="9\n")
    assert chosen.row.tolist() == [1, 2, 3, 4, 5, 6, 9]
    assert run(clusters, count=9, must_include="9\n").header.stats["repeated"] == 2


@pytest.mark.parametrize("line", ["0", "8", "9", NAMES[0]])
def test_an_excluded_content_goes_with_all_its_rows(clusters: Path, line: str) -> None:
    chosen = run(clusters, count=6, exclude=f"{line}\n7\n")  # row 7 could not be selected anyway
    assert chosen.row.tolist() == [1, 2, 3, 4, 5, 6]
    stats = chosen.header.stats
    assert (stats["excluded"], stats["clusterable"], stats["rows"]) == (3, 6, 10)
    # Shares are of what is left: four rows of six, not seven of nine.
    assert chosen.weight.tolist() == pytest.approx([1] * 6)


def test_excluded_rows_are_as_if_they_were_not_there(tmp_path: Path, clusters: Path) -> None:
    (tmp_path / "other").mkdir()
    label = np.where(np.isin(np.arange(10), [1, 5]), -1, LABEL)
    other = write_clusters(
        tmp_path / "other/c.zarr",
        label,
        ids=IDS,
        status=STATUS,
        similarity=Clusters.open(clusters).column("similarity"),
    )
    left, right = run(clusters, fraction=0.6, exclude="1\n5\n"), run(other, fraction=0.6)
    for name in ("row", "cluster", "weight", "similarity"):
        assert getattr(left, name).tolist() == getattr(right, name).tolist(), name


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"must_include": "1\nbroken\n"},
            "{0}/must_include.txt:2: 'broken' is neither a row number nor an id of 32 hexadecimal "
            "digits; `cluster-cli inspect {0}/c.zarr` shows rows and their ids",
        ),
        (
            {"exclude": "-1\n"},
            "{0}/exclude.txt:1: '-1' is neither a row number nor an id of 32 hexadecimal "
            "digits; `cluster-cli inspect {0}/c.zarr` shows rows and their ids",
        ),
        (
            {"exclude": "\n10\n"},
            "{0}/exclude.txt:2: there is no row 10, the last one is 9; "
            "`cluster-cli inspect {0}/c.zarr` shows rows and their ids",
        ),
        (
            {"must_include": "f" * 32 + "\n"},
            "{0}/must_include.txt:1: no row has the id " + "f" * 32 + "; "
            "`cluster-cli inspect {0}/c.zarr` shows rows and their ids",
        ),
        (
            {"must_include": "7\n"},
            "{0}/must_include.txt:1: row 7 is not clustered (empty_response) and cannot be included; "
            "remove the line",
        ),
        (
            {"must_include": NAMES[7]},
            "{0}/must_include.txt:1: row 7 is not clustered (empty_response) and cannot be included; "
            "remove the line",
        ),
        (  # another row of the same content
            {"must_include": "# both\n8\n", "exclude": f"3\n{NAMES[0]}\n"},
            "{0}/must_include.txt:2: 8 is to be included, and excluded by {0}/exclude.txt:2; "
            "remove one of the two lines",
        ),
    ],
)
def test_wrong_lines(clusters: Path, given: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as error:
        run(clusters, count=2, **given)
    assert str(error.value) == message.format(clusters.parent)
    assert not (clusters.parent / "s.jsonl").exists()


def test_a_list_that_cannot_be_read(clusters: Path) -> None:
    path = clusters.parent / "none.txt"
    with pytest.raises(DataError) as error:
        run(clusters, count=2, exclude=path)
    assert str(error.value) == f"cannot read {path}: No such file or directory"
    path.write_bytes(b"\xff\n")
    with pytest.raises(DataError) as error:
        run(clusters, count=2, exclude=path)
    assert str(error.value) == f"{path} is not UTF-8 text; write one id or row a line"


def said(clusters: Path, **given: Any) -> str:
    with pytest.raises(ClusterCliError) as error:
        run(clusters, **given)
    assert isinstance(error.value, SettingError)
    return str(error.value).replace(f"{clusters.parent}/", "")


def test_budgets_too_small(clusters: Path) -> None:
    for budget in ({"count": 1}, {"fraction": 0.1}):
        assert said(clusters, must_include="1\n2\n", **budget) == (
            "--must-include must_include.txt needs 2 examples, the budget is 1; "
            "give at least --count 2"
        )
    # Five contents and two: three and two of them.
    assert said(clusters, min_per_cluster=3, count=4) == (
        "--min-per-cluster 3 needs 5 examples, the budget is 4; give at least --count 5"
    )
    assert said(clusters, min_per_cluster=2, must_include="1\n2\n3\n", count=4) == (
        "--min-per-cluster 2 and --must-include must_include.txt need 5 examples, the budget is 4; "
        "give at least --count 5"
    )
    assert said(clusters, min_per_cluster=1, tokens=39) == (
        "--min-per-cluster 1 needs 2 examples of 40 tokens, the budget is 39; "
        "give at least --tokens 40"
    )
    assert len(run(clusters, min_per_cluster=1, tokens=40)) == 2
    assert said(clusters, exclude="".join(f"{row}\n" for row in range(10)), count=1) == (
        "--exclude names all 9 clustered rows"
    )
    assert said(clusters, exclude="1\n", count=9) == (
        "--count 9 is more than the 8 clustered rows that are not excluded; give at most 8"
    )


def test_min_per_cluster(clusters: Path) -> None:
    chosen = run(clusters, quota="proportional", count=5)
    assert chosen.cluster.tolist() == [0, 0, 0, 0, 1]
    chosen = run(clusters, quota="proportional", count=5, min_per_cluster=2)
    assert chosen.cluster.tolist() == [0, 0, 0, 1, 1]
    chosen = run(
        clusters, quota="proportional", count=7, min_per_cluster=5
    )  # all that are distinct
    assert chosen.cluster.tolist() == [0, 0, 0, 0, 0, 1, 1]
    assert said(clusters, min_per_cluster=-1, count=2) == "--min-per-cluster is -1; give 0 or more"
    assert said(clusters, min_per_cluster=1, count=2, method="random") == (
        "--min-per-cluster sets quotas, and --method random has none; use one of cluster, "
        "balanced-random, proportional, facility, tagcos, s2l"
    )


def test_the_content_of_the_files_is_part_of_the_key(clusters: Path) -> None:
    plain = run(clusters, count=4).header
    assert "must_include" not in plain.params
    first = run(clusters, count=4, must_include="1\n", exclude="2\n").header
    assert {entry["path"]: (entry["sha256"], entry["rows"]) for entry in first.inputs} == {
        "c.zarr": (Clusters.open(clusters).header.key, 10),
        "must_include.txt": (file_sha256(clusters.parent / "must_include.txt"), 1),
        "exclude.txt": (file_sha256(clusters.parent / "exclude.txt"), 1),
    }
    swapped = run(clusters, count=4, must_include="2\n", exclude="1\n").header
    again = run(clusters, count=4, must_include="1\n", exclude="2\n").header
    assert len({plain.key, first.key, swapped.key}) == 3
    assert again.key == first.key
    moved = clusters.parent / "moved.txt"
    moved.write_text("1\n")
    assert run(clusters, count=4, must_include=moved, exclude="2\n").header.key == first.key
