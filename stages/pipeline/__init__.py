"""pipeline: the five stages as one chain, each run only when its result would be another.

The one package that stands above the verbs: it alone imports several stages. They still meet only
through artifacts; what happens here is knowing which artifact follows from which, comparing the key an
output has with the key it would get, and calling the stage where the two differ.
"""

from stages.pipeline.alone import status_of
from stages.pipeline.chain import STAGES, Pipeline
from stages.pipeline.running import run
from stages.pipeline.states import State, keys, status

__all__ = ["STAGES", "Pipeline", "State", "keys", "run", "status", "status_of"]
