"""Reading a user's data: any file, any shape, row by row, with memory that does not grow.

``open_dataset`` finds the files, judges every row and serves the usable ones as ``Example``.
"""

from formats.data.dataset import (
    Dataset,
    find_sources,
    open_dataset,
    open_reference,
    spool_stdin,
)
from formats.data.types import DataOptions, Example, Source

__all__ = [
    "DataOptions",
    "Dataset",
    "Example",
    "Source",
    "find_sources",
    "open_dataset",
    "open_reference",
    "spool_stdin",
]
