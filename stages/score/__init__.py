"""score: how would a gradient step on each example change the model?"""

from stages.score.stage import score

__all__ = ["score"]
