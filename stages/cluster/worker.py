"""``python -m stages.cluster.worker FOLDER``: one rank of a clustering job."""

from stages.cluster.launched import run_rank
from stages.workers import run_worker

if __name__ == "__main__":
    run_worker(run_rank)
