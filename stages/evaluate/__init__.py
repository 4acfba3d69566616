"""evaluate: how well does a model do on data it was not trained on?"""

from stages.evaluate.settings import EvaluateSettings
from stages.evaluate.stage import evaluate, expected_key

__all__ = ["EvaluateSettings", "evaluate", "expected_key"]
