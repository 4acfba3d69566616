"""A place to read from: a path, or a URL that fsspec can open (``s3://``, ``gs://``, ``hf://``, ...).

A ``Url`` is a ``Path`` whose reading goes through fsspec, so that readers join names, ask for parents
and open files without knowing which of the two they hold. Outputs are local: a rename commits them.
"""

from __future__ import annotations

import contextlib
import io
import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PosixPath
from typing import Any

from formats.errors import ArtifactError, SettingError

# One slash is enough: pathlib takes the second one away. Chains (``simplecache::s3://``) are URLs too.
_SCHEME = re.compile(r"(^|::)([A-Za-z][A-Za-z0-9+.-]+):/+")
_URL = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+::)*[A-Za-z][A-Za-z0-9+.-]+:/")
_HEAD = 1 << 16  # bytes that hold nearly every header line


def is_url(name: str | os.PathLike[str]) -> bool:
    """Whether the name starts with a scheme, such as ``s3://``; ``file://`` does not count."""
    text = os.fspath(name)
    return bool(_URL.match(text)) and not text.startswith("file:/")


def place(name: str | os.PathLike[str]) -> Path:
    """The name as a ``Path``, a ``Url`` where it is one; ``file:///data`` is the path ``/data``."""
    text = os.fspath(name)
    if text.startswith("file:/"):
        return Path("/" + text.removeprefix("file:").lstrip("/"))
    return Url(text) if is_url(text) else Path(text)


def local(name: str | os.PathLike[str]) -> Path:
    """The name as a path to write to.

    Raises:
        SettingError: it is a URL.
    """
    path = place(name)
    if isinstance(path, Url):
        raise SettingError(
            f"{path} is a URL, and outputs are local", fix="write it here and copy it there"
        )
    return path


def join(folder: Path, name: str) -> Path:
    """The place that a header in ``folder`` calls ``name``, without ``..``: what ``relative`` undoes."""
    if is_url(name) or not isinstance(folder, Url):
        return place(name) if is_url(name) else Path(os.path.normpath(folder / name))
    if name.startswith("/"):  # a file of the machine on which the artifact was made
        return Path(name)
    scheme, rest = str(folder).split("://", 1)
    host, _, inner = rest.partition("/")
    return Url(f"{scheme}://{host}" + posixpath.normpath(f"/{inner}/{name}"))


def relative(path: Path, folder: Path | None) -> str:
    """How a header in ``folder`` names a place: absolute without a folder, a URL as it is."""
    path = place(path)
    if isinstance(path, Url):
        return str(path)
    return os.path.relpath(path, folder) if folder else os.path.abspath(path)


class Url(PosixPath):
    """A URL with the names and the reading half of a path. What is read is fetched whole.

    Reading raises FileNotFoundError where nothing is, and ArtifactError for all that can go wrong
    besides: the host cannot be reached, access is denied, the package for the scheme is missing.
    """

    def __str__(self) -> str:
        return _SCHEME.sub(r"\1\2://", super().__str__())

    def absolute(self) -> Url:
        """Itself: it depends on no folder."""
        return self

    def exists(self, **_: Any) -> bool:
        """Whether a file, or a folder where the server knows folders, is there."""
        with self._filesystem() as (filesystem, inner):
            return bool(filesystem.exists(inner))

    def is_file(self, **_: Any) -> bool:
        """Whether a file is there."""
        with self._filesystem() as (filesystem, inner):
            return bool(filesystem.isfile(inner))

    def is_dir(self, **_: Any) -> bool:
        """Never: web servers and object stores have names with slashes, not folders."""
        return False

    def glob(self, *_: Any, **__: Any) -> Any:
        """Nothing: a server need not list what it has."""
        return iter(())

    def read_bytes(self, most: int | None = None) -> bytes:
        """The whole content, or at least the first ``most`` bytes of it."""
        with self._filesystem() as (filesystem, inner):
            return bytes(filesystem.cat_file(inner, end=most))

    def open(self, mode: str = "r", *_: Any, encoding: str = "utf-8", **__: Any) -> Any:  # type: ignore[override]
        """The content as a stream, held in memory."""
        content = io.BytesIO(self.read_bytes())
        return content if "b" in mode else io.TextIOWrapper(content, encoding)

    @contextlib.contextmanager
    def _filesystem(self) -> Iterator[tuple[Any, str]]:
        """Its fsspec file system, and its name there."""
        from fsspec.core import url_to_fs

        with explained(str(self)):
            yield url_to_fs(str(self))


@contextlib.contextmanager
def explained(url: str) -> Iterator[None]:
    """All that can go wrong with a URL is an ArtifactError that names it; FileNotFoundError stays."""
    try:
        yield
    except (FileNotFoundError, ArtifactError):
        raise
    except ImportError as error:
        package = getattr(error.__cause__ or error, "name", None)
        raise ArtifactError(
            f"cannot read {url}: {f'the package {package} is missing' if package else error}",
            fix=f"pip install {package}" if package else "",
        ) from error
    except Exception as error:  # every file system has classes of its own
        reason = " ".join(str(error).split()) or type(error).__name__
        raise ArtifactError(f"cannot read {url}: {reason}") from error


def first_line(path: Path) -> str:
    """The first line of a UTF-8 text; of a remote one, as little is fetched as the server allows.

    Raises:
        OSError, ArtifactError, UnicodeDecodeError: it cannot be read.
    """
    if not isinstance(path, Url):
        with open(path, encoding="utf-8") as stream:
            return stream.readline()
    most, content = _HEAD, path.read_bytes(_HEAD)
    while b"\n" not in content and len(content) == most:
        most *= 8
        content = path.read_bytes(most)
    return content.split(b"\n", 1)[0].decode("utf-8")
