"""cluster: which examples teach the same lesson?"""

from stages.cluster.stage import cluster

__all__ = ["cluster"]
