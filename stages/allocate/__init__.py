"""allocate: which rank takes which example at which step?"""

from stages.allocate.stage import allocate

__all__ = ["allocate"]
