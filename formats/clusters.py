"""``clusters.zarr``: the table of lessons, and which lesson each row belongs to.

| array | shape, dtype | meaning |
| --- | --- | --- |
| centroid | (K, D) float32 | unit rows, in the space left after taking ``centre`` away |
| centre | (D) float32 | mean signature that was taken away; zeros when nothing was |
| size | (K) int64 | rows in the cluster, duplicates counted |
| tokens | (K) int64 | their prompt and response tokens |
| spread | (K) float32 | root mean square distance of unnormalised signatures to their mean |
| label | (N) int32 | cluster of the row, -1 = not clustered |
| similarity | (N) float32 | cosine of the centred row to its centroid; 0 where label is -1 |
| example_id | (N, 16) uint8 | as in ``signatures.zarr``, like the next four |
| status | (N) uint8 | index into ``formats.signatures.STATUS_NAMES`` |
| norm, loss | (N) float32 | length of the projected gradient; mean loss of the response |
| row_tokens | (N) int32 | prompt and response tokens |
| response_tokens | (N) int32 | response tokens |

Root attributes: the common header, and from the signatures ``space``, ``space_id``, ``rendering``.
Clusters are numbered by descending size; equal sizes by the smallest example id inside.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from formats import artifacts, blocks
from formats.errors import ArtifactError
from formats.places import join, place
from formats.signatures import OK, TRUNCATED, Signatures

ROW_ARRAYS = {
    "label": "int32",
    "similarity": "float32",
    "status": "uint8",
    "norm": "float32",
    "loss": "float32",
    "row_tokens": "int32",
    "response_tokens": "int32",
}
CLUSTER_ARRAYS = {"size": "int64", "tokens": "int64", "spread": "float32"}
BLOCK = 1 << 14  # rows in a stored block; the signatures' own would show in the map's bytes


def write(
    path: Path, arrays: dict[str, np.ndarray], header: artifacts.Header, block: int = BLOCK
) -> None:
    """Writes a whole map at ``path`` (a fresh ``.partial`` folder), the header last.

    Args:
        path: an empty folder.
        arrays: every array of the table above.
        header: the common header.
        block: rows in a stored block.
    """
    shapes = {name: (array.shape, str(array.dtype)) for name, array in arrays.items()}
    group = blocks.create_group(path, shapes, block)
    for name, array in arrays.items():
        group[name][...] = array
    blocks.seal(path, header.to_json())


@dataclass(frozen=True)
class Clusters:
    """A complete ``clusters.zarr``, opened for reading."""

    path: Path
    header: artifacts.Header
    group: Any

    @classmethod
    def open(cls, path: Path) -> Clusters:
        """Opens and checks the artifact.

        Raises:
            ArtifactMissingError, ArtifactError: see ``artifacts.read_header``; or its arrays do not
                fit together.
        """
        path = place(path)
        header = artifacts.read_header(path, "clusters")
        opened = cls(path, header, blocks.open_arrays(path))
        opened._check()
        return opened

    def _check(self) -> None:
        rows, clusters = self.rows, self.clusters
        lengths = dict.fromkeys((*ROW_ARRAYS, "example_id"), rows)
        lengths |= dict.fromkeys(CLUSTER_ARRAYS, clusters)
        for name, length in lengths.items():
            if name not in self.group or self.group[name].shape[0] != length:
                raise ArtifactError(
                    f"{self.path}: array {name} is missing or has not {length} rows",
                    fix=f"rebuild it with `cluster-cli cluster ... -o {self.path}`",
                )
        if rows and not -1 <= self.label.min() <= self.label.max() < clusters:
            raise ArtifactError(
                f"{self.path}: labels reach from {self.label.min()} to {self.label.max()}, "
                f"but there are {clusters} clusters",
                fix=f"rebuild it with `cluster-cli cluster ... -o {self.path}`",
            )

    @property
    def rows(self) -> int:
        """N, the rows of the dataset."""
        return int(self._shape("label")[0])

    @property
    def clusters(self) -> int:
        """K."""
        return int(self._shape("centroid")[0])

    def _shape(self, name: str) -> tuple[int, ...]:
        if name not in self.group:
            raise ArtifactError(f"{self.path}: array {name} is missing")
        return self.group[name].shape

    def column(self, name: str) -> np.ndarray:
        """One of the arrays above, whole, with its stored dtype."""
        return blocks.read(self.group, name)

    def signatures(self) -> Signatures:
        """The signatures the map was made from, where it says they are.

        Raises:
            ArtifactMissingError, ArtifactError: they are not there, or are others.
        """
        if not self.header.inputs:
            raise ArtifactError(f"{self.path} does not say which signatures it was made from")
        entry = self.header.inputs[0]
        path = join(self.path.parent, entry["path"])
        opened = Signatures.open(path)
        if opened.header.key != entry["sha256"]:
            raise ArtifactError(
                f"{path} are not the signatures {self.path} was made from", fix="cluster them again"
            )
        return opened

    def check_space(self, source: Signatures, fix: str) -> None:
        """Signatures can be compared with the map's centroids: both are of one signature space.

        Raises:
            ArtifactError: they are not; the message names the fields that differ and ends in ``fix``.
        """
        if source.space_id == self.header.extra.get("space_id"):
            return
        space = self.header.extra.get("space", {})
        names = sorted(n for n in {*space, *source.space} if space.get(n) != source.space.get(n))
        raise ArtifactError(
            f"{source.path} and {self.path} are not of the same signature space "
            f"(different: {', '.join(names) or 'space_id'})",
            fix=fix,
            differing=names,
        )

    @cached_property
    def label(self) -> np.ndarray:
        """(N) int32."""
        return self.column("label")

    @cached_property
    def size(self) -> np.ndarray:
        """(K) int64."""
        return self.column("size")

    @cached_property
    def distinct(self) -> np.ndarray:
        """(N) bool: clustered, and the first row of its content."""
        status = self.column("status")
        return (self.label >= 0) & ((status == OK) | (status == TRUNCATED))
