"""allocate: which rank takes which example at which step?"""

from stages.allocate.stage import allocate, expected

__all__ = ["allocate", "expected"]
