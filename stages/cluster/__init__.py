"""cluster: which examples teach the same lesson?"""

from stages.cluster.stage import cluster, expected

__all__ = ["cluster", "expected"]
