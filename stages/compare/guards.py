"""What makes a comparison worthless, refused before it is believed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from formats.artifacts import Header
from formats.data import DataOptions, open_dataset
from formats.errors import DataError, SettingError
from formats.signatures import as_keys
from stages.compare.arms import FULL

TOKENS_APART = 0.02  # a budget of tokens is met up to the last example


def refuse_leak(
    train: Sequence[str], dev: Sequence[str], options: DataOptions, dev_options: DataOptions
) -> None:
    """Looks for rows of the dev data among all rows that could be trained on.

    Raises:
        DataError: there are some; the message has their number and the first ones.
        BadRowsError: the data cannot be read.
    """
    with open_dataset(train, options) as pool, open_dataset(dev, dev_options) as held:
        seen = np.isin(as_keys(held.ids), as_keys(pool.ids))
        rows = np.flatnonzero(seen)
        if len(rows):
            first = ", ".join(f"{held[int(r)].file}:{held[int(r)].line}" for r in rows[:3])
            raise DataError(
                f"{len(rows):,} of {len(held):,} rows of the evaluation data are among the training "
                f"data (the first: {first})",
                fix="take them out of one of the two: rows seen in training say nothing about others",
            )


def refuse_disguise(name: str, selection: Header) -> None:
    """An arm that selects everything is the full set under another name.

    Raises:
        SettingError: it does.
    """
    stats = selection.stats
    if name != FULL and stats["selected"] >= stats["clusterable"]:
        raise SettingError(
            f"the arm {name} selects all {stats['selected']:,} rows: it is the full set in disguise",
            fix="lower the fraction, or leave the arm out",
        )


def refuse_unequal(selections: Mapping[str, Header], budget: str) -> None:
    """All arms but the full one must have the same number of rows, or of tokens.

    Raises:
        SettingError: they have not; the message names two of them.
    """
    used = {name: int(h.stats[_COUNTED[budget]]) for name, h in selections.items() if name != FULL}
    if not used:
        return
    most, least = max(used, key=used.__getitem__), min(used, key=used.__getitem__)
    slack = TOKENS_APART * used[most] if budget == "tokens" else 0
    if used[most] - used[least] > slack:
        raise SettingError(
            f"unequal budgets: {most} has {used[most]:,} {budget}, {least} has {used[least]:,}",
            fix="give all arms the same --fraction, or compare by the other --budget",
        )


_COUNTED = {"rows": "selected", "tokens": "tokens"}
