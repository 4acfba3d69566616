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
