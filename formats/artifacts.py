"""What all artifacts have in common: the header, the key, reading it back, the atomic commit.

An artifact is one of
* a Zarr folder; its header is the root group's attributes (``zarr.json``),
* a JSONL file; its header is the first line,
* a plain folder; its header is ``manifest.json`` or ``run.json``, written last.

The header is read with ``json`` alone, so checking freshness needs no heavy import. Writers build in
``<output>.partial`` under a lock on ``<output>.lock`` and rename into place: a reader sees a complete
artifact or none.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import shutil
import socket
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from formats.errors import ArtifactError, ArtifactMissingError, OutputBusyError
from formats.fingerprints import digest
from formats.places import Url, first_line, join, local, place, relative
from formats.version import __version__

VERSION = "1.0"

# Where each kind keeps its header (relative to the artifact; "" is the file itself) and the command
# that rebuilds it. The header file is also what a Makefile names as its target.
HEADERS = {
    "signatures": ("zarr.json", "score"),
    "clusters": ("zarr.json", "cluster"),
    "selection": ("", "select"),
    "allocation": ("manifest.json", "allocate"),
    "run": ("run.json", "train"),
    "evaluation": ("", "evaluate"),
    "comparison": ("", "compare"),
}


@dataclass(frozen=True)
class Header:
    """The fields every artifact carries (DESIGN section 4).

    Attributes:
        kind: one of ``HEADERS``.
        key: sha256 of all the result depends on.
        params: the parameters as given or resolved, for people and for ``status``.
        inputs: ``[{"path", "sha256", "rows"}]`` of what was read.
        stats: figures worth showing; never part of the key.
        dataset: how to open the examples again (``Dataset.reference``), handed from stage to stage.
        extra: kind-specific fields, such as the signature ``space``.
    """

    kind: str
    key: str
    params: dict[str, Any]
    inputs: list[dict[str, Any]]
    stats: dict[str, Any] = field(default_factory=dict)
    dataset: dict[str, Any] = field(default_factory=dict)
    extra: dict[str, Any] = field(default_factory=dict)
    format_version: str = VERSION
    created_by: str = ""
    complete: bool = True

    def to_json(self) -> dict[str, Any]:
        """The header as it is written."""
        return {
            "format": f"cluster-cli/{self.kind}",
            "format_version": self.format_version,
            "complete": self.complete,
            "created_by": self.created_by or created_by(),
            "key": self.key,
            "params": self.params,
            "inputs": self.inputs,
            "stats": self.stats,
            "dataset": self.dataset,
            **self.extra,
        }


_COMMON = ("format", "format_version", "complete", "created_by", "key", "params", "inputs", "stats")


def created_by() -> str:
    """Name and version of this program, as written into headers."""
    return f"cluster-cli {__version__}"


def stage_key(stage: str, version: int, *, params: Any, inputs: Any) -> str:
    """The key of a stage's result (DESIGN section 4).

    Args:
        stage: the stage's name.
        version: raised by hand whenever the stage would give other results for equal inputs.
        params: the parameters that change the result, JSON-able.
        inputs: content hashes of everything read.
    """
    return digest({"stage": stage, "version": version, "params": params, "inputs": inputs})


def stamp(path: Path, kind: str) -> Path:
    """The file that stands for the artifact in a Makefile: its header file."""
    name = HEADERS[kind][0]
    return path / name if name else path


def read_header(path: str | os.PathLike[str], kind: str) -> Header:
    """The header of a complete artifact of the given kind.

    Raises:
        ArtifactMissingError: nothing is there.
        ArtifactError: it is not this kind of artifact, is incomplete, or its major version is unknown.
    """
    path = place(path)
    written = path.name if isinstance(path, Url) else path  # outputs are local
    command = f"cluster-cli {HEADERS[kind][1]} ... -o {written}"
    raw = _read_raw(path, kind, command)
    got = raw.get("format")
    if got != f"cluster-cli/{kind}":
        other = str(got).removeprefix("cluster-cli/") if got else "something else"
        raise ArtifactError(
            f"{path} holds {other}, not {kind}",
            fix=f"give the output of `cluster-cli {HEADERS[kind][1]}`",
        )
    version = str(raw.get("format_version"))
    if version.split(".")[0] != VERSION.split(".")[0]:
        raise ArtifactError(
            f"{path} has format version {version}, this program reads {VERSION}",
            fix=f"rebuild it with `{command}`",
            found=version,
            expected=VERSION,
        )
    if raw.get("complete") is not True:
        raise ArtifactError(f"{path} is incomplete", fix=f"finish it with `{command}`")
    missing = [name for name in _COMMON if name not in raw]
    if missing:
        raise ArtifactError(
            f"{path} lacks the header fields {', '.join(missing)}", fix=f"rebuild with `{command}`"
        )
    known = {*_COMMON, "dataset"}
    return Header(
        kind=kind,
        key=raw["key"],
        params=raw["params"],
        inputs=raw["inputs"],
        stats=raw["stats"],
        dataset=raw.get("dataset", {}),
        extra={name: value for name, value in raw.items() if name not in known},
        format_version=version,
        created_by=raw["created_by"],
    )


def _read_raw(path: Path, kind: str, command: str) -> dict[str, Any]:
    file = stamp(path, kind)
    another = f"name one made with `cluster-cli {HEADERS[kind][1]}`"
    try:
        text = file.read_text(encoding="utf-8") if HEADERS[kind][0] else first_line(file)
        raw = json.loads(text)
    except FileNotFoundError:
        state = "is incomplete" if path.is_dir() else "does not exist"
        missing = file if isinstance(path, Url) else path
        raise ArtifactMissingError(f"{missing} {state}", fix=f"make it with `{command}`") from None
    except NotADirectoryError:
        raise ArtifactError(f"{path} is a file, not {kind}", fix=another) from None
    except IsADirectoryError:
        raise ArtifactError(f"{path} is a folder, not {kind}", fix=another) from None
    except ArtifactError:  # of a URL
        raise
    except (ValueError, UnicodeDecodeError):
        raise ArtifactError(f"{file} has no readable header", fix=another) from None
    except OSError as error:
        raise ArtifactError(f"cannot read {file}: {error.strerror}") from error
    if isinstance(raw, dict) and HEADERS[kind][0] == "zarr.json":
        raw = raw.get("attributes")
    if not isinstance(raw, dict):
        raise ArtifactError(f"{file} has no readable header", fix=another)
    return raw


def fresh_header(path: Path, kind: str, key: str) -> Header | None:
    """The header when a complete artifact with this very key stands at ``path``, else None."""
    try:
        header = read_header(path, kind)
    except ArtifactError:
        return None
    return header if header.key == key else None


def touch(path: Path, kind: str) -> None:
    """Marks the artifact as checked just now, so that make sees it newer than its inputs."""
    os.utime(stamp(path, kind))


@contextlib.contextmanager
def locked(output: Path) -> Iterator[None]:
    """Holds ``<output>.lock`` (flock, so the kernel frees it on ``kill -9``) for the block's time.

    Raises:
        OutputBusyError: another process holds it; the message names it.
        ArtifactError: the folder cannot be written, or what stands at ``output`` is no artifact:
            somebody's data are never replaced.
        SettingError: ``output`` is a URL.
    """
    output = local(output)
    if not _may_replace(output):
        raise ArtifactError(
            f"{output} exists and was not made by cluster-cli",
            fix="choose another output, or remove it yourself",
        )
    path = output.with_name(output.name + ".lock")
    with _lock_file(path, output) as file, _named(output):
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()} ({' '.join(sys.argv)[:200]})")
        file.flush()
        try:
            yield
        finally:
            # Removed while still held; whoever waits on the removed name opens it anew.
            with contextlib.suppress(FileNotFoundError):
                path.unlink()


@contextlib.contextmanager
def _named(output: Path) -> Iterator[None]:
    """The error of a full disk names no file by itself; here it names the output."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            raise
        raise ArtifactError(f"cannot write {output}: {error.strerror}") from error


def _may_replace(output: Path) -> bool:
    """Whether nothing of value stands there: nothing, an empty folder, or an artifact."""
    if not output.exists():
        return True
    if output.is_dir() and not any(output.iterdir()):
        return True
    for kind in HEADERS:
        with contextlib.suppress(ArtifactError):
            raw = _read_raw(output, kind, "")
            return str(raw.get("format", "")).startswith("cluster-cli/")
    return False


def _lock_file(path: Path, output: Path) -> Any:
    while True:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - the caller closes it
        except OSError as error:
            raise ArtifactError(f"cannot write {path}: {error.strerror}") from error
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            file.close()
            raise OutputBusyError(
                f"{output} is being written by {holder}", fix="wait for it, or stop it"
            ) from None
        # The holder before us may have removed the name between our open and our lock.
        if path.exists() and os.fstat(file.fileno()).st_ino == path.stat().st_ino:
            return file
        file.close()


def rebase_dataset(
    dataset: dict[str, Any], from_folder: Path | None, to_folder: Path | None
) -> dict[str, Any]:
    """A dataset reference whose paths, relative to one folder, become relative to another.

    Headers keep data paths relative to the artifact's own folder, so that a project moved as a whole
    still works. None stands for absolute paths (an artifact written to stdout has no folder). What lies
    beside a remote artifact is remote.
    """
    moved = []
    for source in dataset.get("sources", []):
        path = source["path"]
        if path and source.get("kind") != "hub":
            path = relative(join(from_folder or Path(), path), to_folder)
        moved.append({**source, "path": path})
    return {**dataset, "sources": moved}


def partial(output: Path) -> Path:
    """Where an output is built before it is renamed into place."""
    return output.with_name(output.name + ".partial")


def fresh_partial(output: Path) -> Path:
    """An empty ``<output>.partial`` folder; what a killed run left there is thrown away."""
    folder = partial(output)
    if folder.is_symlink() or folder.is_file():
        folder.unlink()
    elif folder.exists():
        shutil.rmtree(folder)
    folder.mkdir(parents=True)
    return folder


def commit(output: Path) -> None:
    """Renames ``<output>.partial`` into place, replacing what stood there only now.

    A folder cannot be renamed over a full one, so the old one steps aside first. A kill between the
    two renames leaves the new one complete in ``.partial``, found again by the next run.
    """
    built, old = partial(output), output.with_name(output.name + ".old")
    if old.exists():
        _remove(old)
    if output.exists() or output.is_symlink():
        os.rename(output, old)
    os.rename(built, output)
    sync_folder(output.parent)
    if old.exists() or old.is_symlink():
        _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def sync_folder(folder: Path) -> None:
    """Makes renames inside the folder survive a power cut."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, value: Any) -> None:
    """Writes a small JSON file atomically: temporary file beside it, fsync, rename."""
    with atomic_file(path) as stream:
        json.dump(value, stream, indent=1, ensure_ascii=False, allow_nan=False)
        stream.write("\n")


@contextlib.contextmanager
def atomic_file(path: Path) -> Iterator[Any]:
    """A UTF-8 text file that replaces ``path`` when the block ends well, and vanishes otherwise.

    Raises:
        ArtifactError: the file cannot be written (read-only folder, full disk); the old one stands.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, "w", encoding="utf-8", newline="\n") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        os.replace(temporary, path)
        sync_folder(path.parent)
    except OSError as error:
        if isinstance(error, BrokenPipeError) or error.filename not in (
            None,
            str(temporary),
            str(path),
        ):
            raise
        raise ArtifactError(f"cannot write {path}: {error.strerror}") from error
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
