"""Artifacts read from a real web server by the real commands: by hub address, and by plain HTTP."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from formats.data import open_dataset
from tests import prepared, tiny
from tests.served import REPO, served
from tests.synthetic import lessons, write_signatures

Run = Callable[..., subprocess.CompletedProcess[str]]
SIZES = [20, 25, 15]
HTTP = importlib.util.find_spec("aiohttp") is not None
needs_http = pytest.mark.skipif(not HTTP, reason="fsspec reads http:// with aiohttp")


@pytest.fixture(scope="module")
def bucket(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the server serves: data, signatures made from them."""
    folder = tmp_path_factory.mktemp("bucket")
    data = tiny.write_jsonl(folder / "data.jsonl", tiny.questions(sum(SIZES)))
    with open_dataset([str(data)]) as dataset:
        signatures, _ = lessons(SIZES)
        write_signatures(folder / "signatures.zarr", signatures, ids=dataset.ids.copy())
        header = folder / "signatures.zarr" / "zarr.json"
        said = json.loads(header.read_text())
        said["attributes"]["dataset"] = dataset.reference(folder)
    header.write_text(json.dumps(said))
    return folder


@pytest.fixture(scope="module")
def server(bucket: Path) -> Iterator[str]:
    """Its address."""
    with served(bucket) as address:
        yield address


@pytest.fixture
def run(server: str, tmp_path: Path) -> Run:
    """The command as a user types it; ``hf://`` means the local server."""
    environment = prepared.ENVIRONMENT | {
        "HF_ENDPOINT": server,
        "HF_HOME": str(tmp_path / "hub"),
        "HF_HUB_OFFLINE": "0",
        "NO_PROXY": "127.0.0.1",
    }

    def cluster_cli(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "cluster_cli", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=120
        )

    return cluster_cli


def ok(done: subprocess.CompletedProcess[str]) -> str:
    """Standard output of a command that did well."""
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("scheme", ["hf", pytest.param("http", marks=needs_http)])
def test_the_chain_reads_from_a_server_and_writes_here(
    scheme: str, run: Run, bucket: Path, server: str, tmp_path: Path
) -> None:
    at = f"hf://datasets/{REPO}" if scheme == "hf" else server
    ok(run("cluster", f"{at}/signatures.zarr", "-k", "3", "-o", "clusters.zarr"))
    ok(
        run(
            "cluster",
            str(bucket / "signatures.zarr"),
            "-k",
            "3",
            "-o",
            str(bucket / f"{scheme}.zarr"),
        )
    )
    made = [
        json.loads((folder / "zarr.json").read_text())["attributes"]
        for folder in (tmp_path / "clusters.zarr", bucket / f"{scheme}.zarr")
    ]
    assert made[0]["key"] == made[1]["key"]
    assert made[0]["inputs"][0]["path"] == f"{at}/signatures.zarr"
    assert made[0]["dataset"]["sources"][0]["path"] == f"{at}/data.jsonl"

    ok(run("select", f"{at}/{scheme}.zarr", "--count", "9", "-o", "selection.jsonl"))
    os.rename(tmp_path / "selection.jsonl", bucket / f"{scheme}.jsonl")
    selection = f"{at}/{scheme}.jsonl"
    ok(run("allocate", selection, "--ranks", "2", "--strategy", "balanced", "-o", "plan"))

    found = json.loads(ok(run("inspect", selection, "--json")))
    assert (found["path"], found["kind"], len(found["rows"])) == (selection, "selection", 5)
    assert [entry["state"] for entry in found["origin"]] == ["as recorded"]
    checked = run("validate", selection, "plan", "clusters.zarr")
    assert checked.returncode == 0
    assert checked.stderr.splitlines()[0] == (
        f"{selection} is whole: selection, 9 examples, as in {at}/{scheme}.zarr"
    )
    exported = run("export", selection, "--to", "messages", "-o", "-")
    assert (exported.returncode, exported.stdout) == (1, "")
    assert exported.stderr == (
        f"error: the examples are in {at}/data.jsonl, and rows are read from local files alone; "
        "copy the file here; name it with --data, or put the artifact beside it\n"
    )
    data = str(bucket / "data.jsonl")
    rows = ok(run("export", selection, "--to", "messages", "--data", data, "-o", "-")).splitlines()
    assert len(rows) == 9


def test_what_goes_wrong_is_said_in_one_line(run: Run, server: str, tmp_path: Path) -> None:
    at = f"hf://datasets/{REPO}"
    cases = {
        ("validate", f"{at}/nothing.zarr"): (
            f"error: {at}/nothing.zarr is no artifact of cluster-cli; check the URL"
        ),
        ("cluster", f"{at}/nothing.zarr", "-o", "c.zarr"): (
            f"error: {at}/nothing.zarr/zarr.json does not exist; "
            "make it with `cluster-cli score ... -o nothing.zarr`"
        ),
        ("allocate", f"{at}/data.jsonl", "--ranks", "2", "-o", "plan"): (
            f"error: {at}/data.jsonl holds something else, not selection; "
            "give the output of `cluster-cli select`"
        ),
        ("inspect", "nosuch://b/c.zarr"): (
            "error: cannot read nosuch://b/c.zarr/zarr.json: Protocol not known: nosuch"
        ),
    }
    for arguments, text in cases.items():
        done = run(*arguments)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == text + "\n"
    assert not list(tmp_path.glob("c.zarr*"))


@needs_http
def test_servers_that_fail(run: Run, server: str) -> None:
    for at in (f"{server}/broken", "http://127.0.0.1:9"):
        done = run("inspect", f"{at}/clusters.zarr")
        assert done.returncode == 1
        assert done.stderr.startswith(f"error: cannot read {at}/clusters.zarr/zarr.json: ")
        assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("cluster", "signatures.zarr"),
        ("select", "clusters.zarr", "--count", "9"),
        ("score", "data.jsonl", "--model", "model"),
    ],
)
def test_outputs_are_local(run: Run, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, "-o", "s3://bucket/out")
    assert done.returncode == 2
    assert done.stderr == (
        "error: Invalid value for '-o' / '--output': s3://bucket/out is a URL: outputs are local; "
        f"write it here and copy it there; see `cluster-cli {arguments[0]} --help`\n"
    )


def test_other_files_are_local(run: Run) -> None:
    done = run("train", "https://host/allocation", "--model", "m", "-o", "run")
    assert done.returncode == 2
    assert "https://host/allocation is a URL: only a local path can be given here" in done.stderr
