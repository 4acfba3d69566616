"""cluster: which examples teach the same lesson?"""

from stages.cluster.settings import expected
from stages.cluster.stage import cluster

__all__ = ["cluster", "expected"]
