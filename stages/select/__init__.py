"""select: which examples are worth training on, and how much does each count?"""

from stages.select.stage import expected, select

__all__ = ["expected", "select"]
