"""The example Makefile with real make: what is rebuilt, what is not, and what survives a failure."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from formats.artifacts import read_header
from tests import prepared, tiny

EXAMPLE = prepared.ROOT / "examples" / "pipeline"
NAMES = ("arithmetic", "sums")
# One of the two is not trained, to save a launch.
GOALS = ("work/arithmetic/allocation/manifest.json", "work/sums/run/run.json")
NOTHING = "".join(f"make: '{goal}' is up to date.\n" for goal in GOALS)

pytestmark = pytest.mark.skipif(not shutil.which("make"), reason="make is not installed")


def make(folder: Path, *arguments: str, code: int = 0) -> str:
    """Runs make with two jobs; everything it and its commands said."""
    command = f"{sys.executable} -m cluster_cli"
    # As from a shell, also when make runs the tests: its flags and level would change what is said.
    mine = {k: v for k, v in prepared.ENVIRONMENT.items() if not k.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(
        ["make", "-j2", f"CLUSTER_CLI={command}", "ALONE=", *arguments],
        cwd=folder,
        env=mine,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def settings(folder: Path, old: str, new: str) -> None:
    config = folder / "cluster.toml"
    text = config.read_text()
    assert old in text
    config.write_text(text.replace(old, new))


def contents(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def changed(before: dict[str, tuple[int, bytes]], after: dict[str, tuple[int, bytes]]) -> set[str]:
    """The artifacts (``data set/artifact``) of which any file was written anew."""
    names = before.keys() | after.keys()
    return {"/".join(name.split("/")[:2]) for name in names if before.get(name) != after.get(name)}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The example with two data sets and a tiny model, made once. The tests below follow one another."""
    folder = tmp_path_factory.mktemp("pipeline")
    for name in ("Makefile", "cluster.toml"):
        shutil.copy(EXAMPLE / name, folder)
    settings(folder, "max-length = 512", "max-length = 512\nrank = 4\ndims = 32")
    settings(folder, '"auto"', "3")
    settings(folder, "ranks = 2", "ranks = 1")
    tiny.save(folder / "model")
    (folder / "data").mkdir()
    rows = tiny.questions(40)
    for name, part in zip(NAMES, (rows[:20], rows[20:]), strict=True):
        tiny.write_jsonl(folder / "data" / f"{name}.jsonl", part)
    make(folder, *GOALS)
    return folder


def test_all_is_made_and_sound(made: Path) -> None:
    there = {name: sorted(path.name for path in (made / "work" / name).iterdir()) for name in NAMES}
    outputs = list(prepared.OUTPUTS.values())
    assert there == {"arithmetic": sorted(outputs[:-1]), "sums": sorted(outputs)}
    assert make(made, "validate").count(" is whole: ") == 9


def test_untouched_inputs_start_nothing(made: Path) -> None:
    before = contents(made / "work")
    assert make(made, *GOALS) == NOTHING
    assert contents(made / "work") == before


def test_touched_but_equal_inputs_rebuild_nothing(made: Path) -> None:
    """The commands of one data set are asked once, each says so, and then make is content again."""
    before = contents(made / "work")
    (made / "data" / "sums.jsonl").touch()
    said = make(made, *GOALS)
    assert said.count(" is up to date\n") == 5
    assert said.count("arithmetic") == said.count(GOALS[0]) == 1
    assert contents(made / "work") == before
    assert make(made, *GOALS) == NOTHING


def test_a_changed_seed_of_select_redoes_select_allocate_and_train_only(made: Path) -> None:
    """Of one data set here, because training takes its time; the order is random to feel the seed."""
    before = contents(made / "work")
    settings(made, "seed = 0", 'seed = 1\nwithin = "random"')
    make(made, "work/sums/run/run.json")
    assert changed(before, contents(made / "work")) == {
        "sums/selection.jsonl",
        "sums/allocation",
        "sums/run",
    }


def test_a_failing_stage_keeps_the_last_good_artifact(made: Path) -> None:
    before = contents(made / "work")
    settings(made, "fraction = 0.31", "count = 1000")
    said = make(made, "work/sums/run/run.json", code=2)
    assert "error: --count 1000 is more than the 20 clustered rows" in said
    assert "Error 2" in said
    assert contents(made / "work") == before
    settings(made, "count = 1000", "fraction = 0.31")
    make(made, "work/sums/run/run.json")
    assert contents(made / "work") == before


def test_several_data_sets_share_one_map(made: Path) -> None:
    """From nothing and with two jobs: who borrows the map waits for it. Then the map is given back."""
    maps = [f"work/{name}/clusters.zarr/zarr.json" for name in NAMES]
    before = contents(made / "work")
    for name in NAMES:
        shutil.rmtree(made / "work" / name / "clusters.zarr")
    make(made, "MAP=sums", *maps)
    assert changed(before, contents(made / "work")) >= {"arithmetic/clusters.zarr"}
    own, borrowed = (
        read_header(made / "work" / n / "clusters.zarr", "clusters") for n in NAMES[::-1]
    )
    assert [item["path"] for item in own.inputs] == ["signatures.zarr"]
    assert [item["path"] for item in borrowed.inputs] == [
        "signatures.zarr",
        "../sums/clusters.zarr",
    ]
    assert make(made, "MAP=sums", *maps) == "".join(f"make: '{m}' is up to date.\n" for m in maps)
    make(made, *maps)
    after = read_header(made / "work" / "arithmetic" / "clusters.zarr", "clusters")
    assert [item["path"] for item in after.inputs] == ["signatures.zarr"]
    assert "there is no data/nobody.jsonl to take the map of" in make(made, "MAP=nobody", code=2)
