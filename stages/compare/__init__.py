"""compare: is the selection as good as all rows, better than chance, and did it pay?

Stands above the stages, as ``stages.pipeline`` does: it runs whole chains, one per arm and seed, and looks
at what their evaluations say.
"""

from stages.compare.arms import ARMS, Arm, find_arms
from stages.compare.stage import Comparison, compare
from stages.compare.trials import Trial

__all__ = ["ARMS", "Arm", "Comparison", "Trial", "compare", "find_arms"]
