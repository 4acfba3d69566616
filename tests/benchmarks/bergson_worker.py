"""Signs rows with bergson, run by speed.py with the interpreter of an environment that has bergson.

Arguments: model folder, JSON file of rows ({"input_ids", "labels", "length"}), folder for the index.
Prints the processor seconds that collecting took, model loading and imports left out.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import torch
from bergson.collection import collect_gradients  # type: ignore[import-not-found]
from bergson.config.config import IndexConfig  # type: ignore[import-not-found]
from bergson.data import allocate_batches  # type: ignore[import-not-found]
from bergson.utils.worker_utils import (  # type: ignore[import-not-found]
    create_processor,
    setup_model_and_peft,
)
from datasets import Dataset


def main() -> None:
    folder, rows, index = sys.argv[1:]
    data = Dataset.from_list(json.loads(Path(rows).read_text()))
    config = IndexConfig(
        index, model=folder, precision="fp32", projection_dim=16, loss_reduction="mean"
    )
    config.partial_run_path.mkdir(parents=True)
    model, modules = setup_model_and_peft(config)
    processor = create_processor(model, config, modules)
    batches = allocate_batches(data["length"][:], config.token_batch_size)
    collect = {"processor": processor, "cfg": config, "target_modules": modules}
    # Once before the clock runs: first calls load and compile what later ones find ready.
    collect_gradients(model, data.select(range(2)), batches=[[0, 1]], **collect)
    start = time.process_time()
    collect_gradients(model, data, batches=batches, **collect)
    print(json.dumps({"seconds": time.process_time() - start, "threads": torch.get_num_threads()}))


if __name__ == "__main__":
    main()
