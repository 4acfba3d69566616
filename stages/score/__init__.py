"""score: how would a gradient step on each example change the model?"""

from stages.score.stage import expected_key, score

__all__ = ["expected_key", "score"]
