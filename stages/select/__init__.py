"""select: which examples are worth training on, and how much does each count?"""

from stages.select.expect import expected, further_inputs
from stages.select.stage import select

__all__ = ["expected", "further_inputs", "select"]
