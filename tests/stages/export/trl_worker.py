"""One of two processes that run TRL: with the plan's mixin, and plain on an export.

The work folder has the allocation, the model and ``exported/``; every rank leaves ``seen-RANK.json``.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch
import yaml
from datasets import load_dataset
from transformers import AutoTokenizer
from trl import SFTConfig, SFTTrainer

from stages.export.trainer import PlanMixin, plan_arguments, plan_rows
from tests.stages.export.places import TEMPLATE

QUIET = {
    "use_cpu": True,
    "report_to": "none",
    "save_strategy": "no",
    "disable_tqdm": True,
    "max_grad_norm": 0.0,
    "lr_scheduler_type": "constant",
    "optim": "sgd",
    "logging_steps": 1,
    "bf16": False,
    "learning_rate": 0.5,
}


class Watched(SFTTrainer):
    """Remembers which rows went through the model, by their tokens."""

    def training_step(self, model: Any, inputs: dict[str, Any], *rest: Any) -> Any:
        if not hasattr(self, "seen"):
            self.seen: list[list[str]] = []
            self.names = {tuple(row["input_ids"]): row["id"] for row in self.train_dataset}
        kept = zip(inputs["input_ids"].tolist(), inputs["attention_mask"].tolist(), strict=True)
        rows = [tuple(t for t, on in zip(*pair, strict=True) if on) for pair in kept]
        weights = inputs.get("plan_weight", [1.0] * len(rows))
        self.seen.append([self.names[r] for r, w in zip(rows, weights, strict=True) if w])
        return super().training_step(model, inputs, *rest)


class Planned(PlanMixin, Watched):
    pass


def main(folder: Path) -> None:
    torch.set_num_threads(1)
    tokenizer = AutoTokenizer.from_pretrained(folder / "model")
    planned = Planned(
        str(folder / "model"),
        allocation=folder / "allocation",
        args=SFTConfig(str(folder / "out"), **plan_arguments(folder / "allocation"), **QUIET),
        train_dataset=plan_rows(folder / "allocation", tokenizer, cache_dir=str(folder / "cache")),
        processing_class=tokenizer,
    )
    planned.train()
    tokenizer.chat_template = TEMPLATE
    settings = yaml.safe_load((folder / "exported" / "sft_config.yaml").read_text())
    plain = Watched(
        str(folder / "model"),
        args=SFTConfig(str(folder / "out"), **{**QUIET, **settings}),
        train_dataset=load_dataset(
            "json",
            data_files=str(folder / "exported" / "train.jsonl"),
            split="train",
            cache_dir=str(folder / "cache"),
        ),
        processing_class=tokenizer,
    )
    plain.train()
    rank = planned.args.process_index
    losses = [line["loss"] for line in planned.state.log_history if "loss" in line]
    seen = {"planned": planned.seen, "plain": plain.seen, "losses": losses}
    (folder / f"seen-{rank}.json").write_text(json.dumps(seen))
    if rank == 0:
        planned.model.save_pretrained(folder / "trained")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
