"""Every error the project raises on purpose.

Each class carries the facts it was raised with (``data``) and derives from the project's base and
from the builtin a caller would catch. The text is one line: what is wrong, the value got, and what
to do next. ``exit_code`` is what the command line returns for it.
"""

from __future__ import annotations


class ClusterCliError(Exception):
    """Base of all errors the project raises on purpose.

    Args:
        problem: what is wrong, with the value got and the place (file, line) where there is one.
        fix: what to type or change next; empty when nothing sensible can be said.
        data: the facts behind the message, kept as ``error.data`` for callers.
    """

    exit_code = 1

    def __init__(self, problem: str, *, fix: str = "", **data: object) -> None:
        super().__init__(f"{problem}; {fix}" if fix else problem)
        self.problem = problem
        self.fix = fix
        self.data = data


class SettingError(ClusterCliError, ValueError):
    """A flag, argument or configuration value is wrong, or two of them contradict each other."""

    exit_code = 2


class DataError(ClusterCliError, ValueError):
    """A data file cannot be used: missing, empty, unreadable, or of a shape nobody can guess."""


class BadRowsError(DataError):
    """Some rows cannot be used; ``error.data`` holds ``rows`` (the first ones) and ``total``."""


class ModelError(ClusterCliError, ValueError):
    """A model or tokenizer cannot be found, read or used."""


class ArtifactError(ClusterCliError, ValueError):
    """An artifact is missing, incomplete, of another kind, or of a version nobody here can read."""


class ArtifactMissingError(ArtifactError, FileNotFoundError):
    """Nothing stands where an artifact was expected."""

    # OSError's own __str__ would show errno fields that are not set here.
    __str__ = Exception.__str__


class DataChangedError(DataError):
    """The data on disk is no longer the data an artifact was made from."""


class OutputBusyError(ClusterCliError, BlockingIOError):
    """Another process holds the output's lock."""

    __str__ = Exception.__str__


class WorkerError(ClusterCliError, RuntimeError):
    """A worker process failed; ``error.data['exit_code']`` is what it returned."""


class NotFiniteError(ClusterCliError, ArithmeticError):
    """A loss or gradient is NaN or infinite."""
