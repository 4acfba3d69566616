"""The picture of a map: what is drawn where, and what can go wrong."""

from __future__ import annotations

import builtins
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from formats.clusters import Clusters
from formats.errors import ArtifactError, SettingError
from stages.cluster import cluster
from stages.inspect.plot import _in_plane, _laid_out, _middles, plot
from tests.synthetic import lessons, write_signatures


def make(folder: Path, sizes: list[int], dims: int = 32) -> Clusters:
    path = write_signatures(folder / "s.zarr", lessons(sizes, dims=dims, noise=0.5)[0])
    cluster(path, folder / "c.zarr", clusters=len(sizes))
    return Clusters.open(folder / "c.zarr")


@pytest.mark.parametrize("sizes", [[30, 20, 10], [1], [12] * 15])
def test_a_picture_is_drawn_and_is_the_same_again(tmp_path: Path, sizes: list[int]) -> None:
    """Few clusters in a plane, one example, and more clusters than a plane shows."""
    source = make(tmp_path, sizes)
    for name in ("a", "b"):
        for ending in (".png", ".svg") if len(sizes) == 3 else (".png",):
            plot(source, (tmp_path / name).with_suffix(ending))
    for path in tmp_path.glob("a.*g"):
        assert path.read_bytes() == path.with_stem("b").read_bytes()
    from matplotlib import image

    pixels = image.imread(tmp_path / "a.png")
    assert pixels.shape == (1350, 1350, 4)
    colours = np.unique((pixels[..., :3].reshape(-1, 3) * 255).astype(int), axis=0)
    assert len(colours) > 10 * len(sizes)
    left = {path.stem for path in tmp_path.iterdir()}
    assert left == {"a", "b", "c", "s"}


def test_vector_pictures_hold_every_number(tmp_path: Path) -> None:
    import re

    source = make(tmp_path, [12] * 15)
    import matplotlib as mpl

    with mpl.rc_context({"svg.fonttype": "none"}):
        plot(source, tmp_path / "map.svg")
    words = re.findall(r"<text[^>]*>([^<]*)</text>", (tmp_path / "map.svg").read_text())
    assert {str(number) for number in range(15)} <= set(words)
    assert "180 examples in 15 clusters" in words
    assert "(180 drawn; similar ones together, by t-SNE)" in words


def test_both_layouts_keep_lessons_apart() -> None:
    """Of the two nearest dots of a dot, nearly all are of its own lesson."""
    rows, lesson = lessons([40, 40, 40], dims=16, noise=0.4)
    for layout in (_in_plane, _laid_out):
        spot_S2, _ = layout(rows.astype(np.float32))
        away = np.linalg.norm(spot_S2[:, None] - spot_S2[None], axis=2)
        nearest = np.argsort(away, axis=1)[:, 1:3]
        assert (lesson[nearest] == lesson[:, None]).mean() > 0.95


def test_a_number_stands_on_a_dot_of_its_cluster() -> None:
    spot_S2 = np.array([[0, 0], [1, 0], [2, 0], [10, 10], [9, 9]], dtype=float)
    found = _middles(spot_S2, np.array([0, 0, 0, 4, 4]))
    assert found[0].tolist() == [1, 0]
    assert found[4].tolist() in ([10, 10], [9, 9])


def test_without_matplotlib(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, load = make(tmp_path, [5, 5]), builtins.__import__

    def missing(name: str, *more: Any) -> Any:
        if name.startswith("matplotlib"):
            raise ImportError(name)
        return load(name, *more)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(SettingError) as error:
        plot(source, tmp_path / "map.png")
    assert str(error.value) == "--plot needs matplotlib; pip install 'cluster-cli[report]'"


@pytest.mark.parametrize(
    ("name", "what"), [("map.docx", "a .docx"), ("map", "a file without an ending")]
)
def test_an_unknown_ending(tmp_path: Path, name: str, what: str) -> None:
    source = make(tmp_path, [5, 5])
    with pytest.raises(SettingError) as error:
        plot(source, tmp_path / name)
    assert str(error.value) == (
        f"--plot cannot draw {what}: {tmp_path / name}; name a file that ends in .png, .svg, .pdf"
    )


def test_the_signatures_must_be_those_of_the_map(tmp_path: Path) -> None:
    source = make(tmp_path, [5, 5])
    shutil.rmtree(tmp_path / "s.zarr")
    with pytest.raises(ArtifactError, match="s.zarr does not exist"):
        plot(source, tmp_path / "map.png")
    write_signatures(tmp_path / "s.zarr", lessons([5, 5], seed=1)[0])
    with pytest.raises(ArtifactError, match="are not the signatures .* was made from"):
        plot(source, tmp_path / "map.png")
    assert not (tmp_path / "map.png").exists()


def test_a_place_that_cannot_be_written(tmp_path: Path) -> None:
    source = make(tmp_path, [5, 5])
    with pytest.raises(ArtifactError, match="cannot write .*map.png: No such file or directory"):
        plot(source, tmp_path / "no folder" / "map.png")
