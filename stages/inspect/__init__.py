"""inspect: what an artifact is, where it came from, and what is in it."""

from stages.inspect.report import inspect

__all__ = ["inspect"]
