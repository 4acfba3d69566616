"""``python -m stages.score.worker FOLDER``: one rank of a scoring job."""

from stages.score.stage import run_rank
from stages.workers import run_worker

if __name__ == "__main__":
    run_worker(run_rank)
