"""A place with data, model and plans to export."""

from __future__ import annotations

from pathlib import Path

from tests.stages.train import plans

# Two ranks, two micro-batches of two places, two steps, every place filled.
FULL = [[[[0, 1], [2, 3]], [[4, 5], [6, 7]]], [[[8, 9], [10, 11]], [[12, 13], [14, 15]]]]
# The chat template of formats.chat_templates, roughly: what TRL needs to make tokens of messages.
TEMPLATE = "{% for m in messages %}{{ m['content'] }}\n{% endfor %}"


def full(folder: Path, data: Path, *, epochs: int = 1, name: str = "full") -> Path:
    """The plan ``FULL``; row 3 weighs 3, row 8 half."""
    return plans.write_allocation(
        folder / name, data, FULL, weights={3: 3.0, 8: 0.5}, epochs=epochs
    )
