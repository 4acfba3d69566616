"""The finder and judge of commands that the other tests of documents rely on."""

from __future__ import annotations

import click
import pytest

from tests.docs.commands import check, commands, fenced


def test_commands_are_found_in_shell_text() -> None:
    text = """\
$ cluster-cli score a.jsonl -m base \\
    -o s.zarr
X=1 cluster-cli status --check && echo done   # cluster-cli nothing
echo "key=$(cluster-cli key score)" >> "$OUT"
torchrun --nproc-per-node 2 -m cluster_cli train a -o b; cat x | cluster-cli score - -o 'my s'
cluster-cli select c.zarr -o - | head -1 > x
git clone x cluster-cli && cd cluster-cli
the cluster_cli folder, and `cluster-clip`
- cluster-cli run
"""
    assert commands(text) == [
        "score a.jsonl -m base -o s.zarr".split(),
        ["status", "--check"],
        ["key", "score"],
        "train a -o b".split(),
        ["score", "-", "-o", "my s"],
        ["select", "c.zarr", "-o", "-"],
        ["run"],
    ]


def test_fences() -> None:
    assert list(fenced("a\n```sh\nb\n```\nc\n````\n```\nd\n````\n")) == [
        ("sh", "b\n"),
        ("", "```\nd\n"),
    ]


@pytest.mark.parametrize(
    "line",
    [
        "--version",
        "--set score.rank=2 --config x.toml -q run mine.toml -n",
        "config show --json",
        "score ... -o s.zarr",
        "score --help",
        "select c.zarr --fraction auto -o -",
    ],
)
def test_valid(line: str) -> None:
    check(line.split())


@pytest.mark.parametrize(
    "line",
    [
        "",
        "scor a",
        "--nope run",
        "score a.jsonl -m base",
        "score a.jsonl -m base -o s --nope",
        "score ... --nope",
        "run a.toml b.toml",
        "config",
        "config shw",
        "key sore",
        "select c.zarr --fraction many -o -",
        "allocate s.jsonl --ranks two -o a",
    ],
)
def test_not_valid(line: str) -> None:
    with pytest.raises(click.UsageError):
        check(line.split())
