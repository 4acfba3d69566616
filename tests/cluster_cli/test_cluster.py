"""`cluster-cli cluster`: flags, exit codes, what goes to stdout."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from cluster_cli.main import run
from formats.clusters import Clusters
from tests.synthetic import lessons, write_signatures


@pytest.fixture
def signatures(tmp_path: Path) -> Path:
    return write_signatures(tmp_path / "signatures.zarr", lessons([20, 10, 5])[0])


def test_writes_a_map_and_says_so_on_stderr(
    signatures: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = signatures.parent / "clusters.zarr"
    assert run(["cluster", str(signatures), "-o", str(output), "-k", "3", "--no-centre"]) == 0
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("35 rows (35 distinct) in 3 clusters of 5 to 20 rows; mean simil")
    header = Clusters.open(output).header
    assert header.params == {"clusters": 3, "centre": False, "seed": 0, "sample": 50_000}
    assert run(["cluster", str(signatures), "-o", str(output), "-k", "3", "--no-centre"]) == 0
    assert capsys.readouterr().err == f"{output} is up to date\n"


def test_json_and_auto(signatures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = signatures.parent / "clusters.zarr"
    assert run(["cluster", str(signatures), "-o", str(output), "--json"]) == 0
    header = json.loads(capsys.readouterr().out)
    assert header["format"] == "cluster-cli/clusters"
    assert header["stats"]["auto"]["curve"]


@pytest.mark.parametrize("value", ["0", "-3", "2.5", "many"])
def test_a_wrong_number_of_clusters(
    signatures: Path, value: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(["cluster", str(signatures), "-o", "c.zarr", "--clusters", value]) == 2
    assert f"'{value}' is neither a positive number nor auto" in capsys.readouterr().err


def test_missing_signatures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "none.zarr"
    assert run(["cluster", str(path), "-o", str(tmp_path / "c.zarr")]) == 1
    assert capsys.readouterr().err == (
        f"error: {path} does not exist; make it with `cluster-cli score ... -o {path}`\n"
    )


def test_reuse(signatures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = signatures.parent / "old.zarr", signatures.parent / "new.zarr"
    assert run(["cluster", str(signatures), "-o", str(old), "-k", "3"]) == 0
    capsys.readouterr()
    assert run(["cluster", str(signatures), "-o", str(new), "--reuse", str(old)]) == 0
    assert capsys.readouterr().err.splitlines()[-1].endswith(": the map holds")
    assert Clusters.open(old).label.tolist() == Clusters.open(new).label.tolist()
    assert run(["cluster", str(signatures), "-o", str(new), "--extend"]) == 2
    assert capsys.readouterr().err == (
        "error: --extend needs an older map; add --reuse clusters.zarr\n"
    )


def test_ranks_and_rounds(signatures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = signatures.parent / "clusters.zarr"
    arguments = ["cluster", str(signatures), "-o", str(output), "-k", "3", "--sample", "20"]
    assert run([*arguments, "--rounds", "2", "--ranks", "2", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["params"]["rounds"] == 2
    assert said.err.splitlines()[-1].startswith("35 rows (35 distinct) in 3 clusters")
    assert run([*arguments, "--rounds", "-1"]) == 2
    assert "-1 is not in the range x>=0" in capsys.readouterr().err
    hosts = signatures.parent / "hosts"
    hosts.write_text("localhost slots=3\n")
    assert run([*arguments, "--ranks", "2", "--hostfile", str(hosts)]) == 2
    assert "has 3 slots, but 2 ranks are to run" in capsys.readouterr().err


def test_every_option_belongs_into_a_pipeline() -> None:
    """What the [cluster] section of a cluster.toml does not know asks for something else."""
    from cluster_cli.cluster import command
    from cluster_cli.pipeline import foreign

    assert foreign("cluster", command) == {"as_json", "force"}


def test_cards_and_picture(signatures: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output, picture = signatures.parent / "clusters.zarr", signatures.parent / "map.png"
    run(["-q", "cluster", str(signatures), "-o", str(output), "-k", "3"])
    assert run(["inspect", str(output), "--plot", str(picture)]) == 0
    said = capsys.readouterr()
    assert f"drew {picture}" in said.err
    assert "cluster 0: 20 rows (57.1%)" in said.out
    assert picture.stat().st_size > 10_000
    assert run(["inspect", str(output), "--by", "topic"]) == 1
    assert capsys.readouterr().err == (
        f"error: the column 'topic' cannot be counted: {output} does not say where its data are; "
        "leave --by out\n"
    )
