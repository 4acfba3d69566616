"""The words the data package speaks: options, sources, examples, and a row nobody can use."""

from __future__ import annotations

import difflib
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from formats.errors import SettingError

FORMATS = (
    "auto",
    "messages",
    "sharegpt",
    "alpaca",
    "prompt-completion",
    "qa",
    "text",
    "fields",
)
FIELD_ROLES = ("prompt", "response", "system")


@dataclass(frozen=True)
class DataOptions:
    """Everything besides the files that decides what is read.

    Attributes:
        format: the shape every row must have, or ``auto`` to detect it row by row.
        fields: (role, field name) pairs for rows of any other shape; the roles are ``prompt``,
            ``response`` and ``system``. Several fields of one role are joined by a blank line.
        split: a split of a Hugging Face dataset or of a folder.
        subset: a configuration of a Hugging Face dataset or of a folder.
        on_bad_row: ``fail`` or ``skip``.
        limit: read only the first so many usable rows.

    Raises:
        SettingError: a value is not one of these, or two of them contradict each other.
    """

    format: str = "auto"
    fields: tuple[tuple[str, str], ...] = ()
    split: str | None = None
    subset: str | None = None
    on_bad_row: str = "fail"
    limit: int | None = None

    def __post_init__(self) -> None:
        _one_of("--format", self.format, FORMATS)
        _one_of("--on-bad-row", self.on_bad_row, ("fail", "skip"))
        for role, _ in self.fields:
            _one_of("--field", role, FIELD_ROLES)
        if self.limit is not None and self.limit < 1:
            raise SettingError(
                f"--limit {self.limit} reads nothing", fix="give a number of rows, 1 or more"
            )
        if self.fields and self.format not in ("auto", "fields"):
            raise SettingError(
                f"--field and --format {self.format} contradict each other", fix="drop one of them"
            )
        missing = {"prompt", "response"} - {role for role, _ in self.fields}
        if (self.fields or self.format == "fields") and missing:
            raise SettingError(
                f"no --field names the {' and the '.join(sorted(missing))}",
                fix="add " + " ".join(f"--field {role}=NAME" for role in sorted(missing)),
            )

    def to_json(self) -> dict[str, Any]:
        """As a JSON object; ``from_json`` reads it back."""
        return {**asdict(self), "fields": [list(pair) for pair in self.fields]}

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> DataOptions:
        """The options that ``to_json`` wrote.

        Raises:
            SettingError: as the constructor.
        """
        fields = tuple((role, name) for role, name in value.get("fields", []))
        return cls(**{**value, "fields": fields})


@dataclass(frozen=True)
class Source:
    """One file, folder or Hugging Face dataset that rows were read from.

    Attributes:
        path: as the user named it, or as a glob or folder yielded it.
        sha256: hex digest of the content.
        rows: usable rows read from it.
    """

    path: str
    sha256: str
    rows: int


@dataclass(frozen=True)
class Example:
    """One usable row.

    Attributes:
        row: 0-based, over the usable rows in reading order.
        id: 16 bytes, BLAKE2b-128 of the canonical JSON of ``[messages, tools]``.
        messages: ``{"role", "content"}`` dictionaries with the roles system, user, assistant and
            tool, and where the row has them ``tool_calls``, ``tool_call_id``, ``name``,
            ``reasoning_content``, and ``weight`` 0 on an assistant turn that is context only.
            Plain text is a single message of the role ``text``.
        tools: the tool descriptions offered to the model, if the row has any.
        columns: the row as it was read, all fields.
        file: the source's path.
        line: 1-based line, or record number where a file has no lines.
    """

    row: int
    id: bytes
    messages: list[dict[str, Any]]
    tools: list[Any] | None
    columns: dict[str, Any]
    file: str
    line: int


class Conversation(NamedTuple):
    """What one row says, whatever its shape was."""

    shape: str
    messages: list[dict[str, Any]]
    tools: list[Any] | None


class BadRow(Exception):  # noqa: N818 - a verdict on data, collected and reported, not a failure
    """Why one row cannot be used; the text is the reason alone, without file and line."""


def _one_of(flag: str, value: str, allowed: tuple[str, ...]) -> None:
    if value in allowed:
        return
    near = difflib.get_close_matches(value, allowed, n=1)
    raise SettingError(
        f"{flag} does not know {value!r}",
        fix=(f"did you mean {near[0]!r}? " if near else "") + f"known: {', '.join(allowed)}",
    )
