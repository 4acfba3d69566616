"""What other people's trainers need to be told, and what becomes of the weights there.

Read in the sources of TRL 1.16.0 with Transformers 5.24.0, axolotl 0.15.0.dev0 and LLaMA-Factory
0.9.6.dev0:

* TRL's ``SFTTrainer`` removes every column it does not know, ``weight`` among them, and takes the mean over
  all response tokens of a step.
* axolotl's chat template strategy keeps token ids and labels alone; a message's own field
  (``message_field_training``) says whether it is learned, as a boolean.
* LLaMA-Factory reads no weight column. Its newer trainer (``v1``) has a weight per message, and divides
  each micro-batch by the sum of its weights: alone in its micro-batch, an example has any weight.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from stages.export.rows import ANSWER, CHAT, TEXT, Facts

DATA = "train.jsonl"
NAME = "cluster_cli"


@dataclass(frozen=True)
class Plan:
    """What a configuration is made from.

    Attributes:
        folder: where the export goes, as the user named it.
        facts: what can be said of all rows.
        ordered: the order is to be kept.
        shape: ``ranks``, ``micro_batch`` and ``accumulation`` of the allocation, if there is one.
        max_length: tokens per example, where the artifact says it.
    """

    folder: str
    facts: Facts
    ordered: bool
    shape: dict[str, int]
    max_length: int | None

    def batches(self, micro_batch: str) -> dict[str, int]:
        """The shape in a trainer's words."""
        if not self.shape:
            return {}
        return {
            micro_batch: self.shape["micro_batch"],
            "gradient_accumulation_steps": self.shape["accumulation"],
        }

    def yaml(self, title: str, values: dict[str, Any]) -> str:
        """A YAML file of flat settings; JSON values are YAML too."""
        lines = [f"# {title}"]
        if self.ordered:
            lines.append(f"# The order is the plan's on {self.shape['ranks']} processes.")
        lines += [
            f"{name}: {json.dumps(value)}" for name, value in values.items() if value is not None
        ]
        return "\n".join(lines) + "\n"


def _trl(plan: Plan) -> dict[str, str]:
    values: dict[str, Any] = {
        "packing": False,
        "max_length": plan.max_length,
        **plan.batches("per_device_train_batch_size"),
    }
    if plan.facts.style == CHAT:
        values["assistant_only_loss"] = True
    if plan.ordered:
        values |= {"train_sampling_strategy": "sequential", "shuffle_dataset": False}
        values["num_train_epochs"] = 1
    title = f'Arguments of trl.SFTConfig; the rows: load_dataset("json", data_files="{DATA}").'
    return {"sft_config.yaml": plan.yaml(title, values)}


def _axolotl(plan: Plan) -> dict[str, str]:
    dataset: dict[str, Any] = {"path": f"{plan.folder}/{DATA}", "ds_type": "json"}
    if plan.facts.style == TEXT:
        dataset["type"] = "completion"
    else:
        dataset |= {"type": "chat_template", "field_messages": "messages"}
        dataset |= {"roles_to_train": ["assistant"], "message_field_training": "weight"}
    values: dict[str, Any] = {
        "datasets": [dataset],
        "sample_packing": False,
        "sequence_len": plan.max_length,
        **plan.batches("micro_batch_size"),
    }
    if plan.ordered:
        values |= {"shuffle_merged_datasets": False, "curriculum_sampling": True}
        values |= {"group_by_length": False, "dataloader_drop_last": False}
        values |= {"val_set_size": 0, "num_epochs": 1}
    return {"axolotl.yaml": plan.yaml("Part of an axolotl configuration.", values)}


def _llamafactory(plan: Plan) -> dict[str, str]:
    values: dict[str, Any] = {
        "stage": "pt" if plan.facts.style == TEXT else "sft",
        "dataset_dir": plan.folder,
        "dataset": NAME,
        "packing": False,
        "cutoff_len": plan.max_length,
        **plan.batches("per_device_train_batch_size"),
    }
    if plan.facts.style == ANSWER:
        values["mask_history"] = True
    if plan.ordered:
        values |= {"disable_shuffling": True, "val_size": 0.0, "num_train_epochs": 1.0}
    return {
        "dataset_info.json": json.dumps({NAME: _entry(plan.facts)}, indent=1) + "\n",
        "llamafactory.yaml": plan.yaml("Part of a LLaMA-Factory configuration.", values),
    }


def _entry(facts: Facts) -> dict[str, Any]:
    """The data set's entry in ``dataset_info.json``; only its openai format knows tool calls."""
    if facts.style == TEXT:
        return {"file_name": DATA, "columns": {"prompt": "text"}}
    tags = {"role": "role", "content": "content", "user": "user", "assistant": "assistant"}
    tags |= {"system": "system", "observation": "tool"}
    columns = {"messages": "messages", **({"tools": "tools"} if facts.tools else {})}
    return {
        "file_name": DATA,
        "formatting": "openai" if facts.tools else "sharegpt",
        "columns": columns,
        "tags": {f"{name}_tag": value for name, value in tags.items()},
    }


@dataclass(frozen=True)
class Trainer:
    """What is written for one trainer.

    Attributes:
        files: names and contents of its configuration files; none: the rows go to a single file.
        columns: by style, the columns to add for it.
        loses: what becomes of the weights, in words; empty where that is up to the reader.
        obeys: in these styles it leaves out assistant turns that are not to be learned.
    """

    files: Callable[[Plan], dict[str, str]] | None
    columns: dict[str, tuple[str, ...]]
    loses: str = ""
    obeys: tuple[str, ...] = (CHAT, ANSWER, TEXT)


_MESSAGES = {CHAT: ("messages",), ANSWER: ("messages",), TEXT: ()}

TRAINERS = {
    "trl": Trainer(
        _trl,
        {**_MESSAGES, ANSWER: ("prompt", "completion")},
        "TRL drops the column weight: keep weights and plan with stages.export.trainer.PlanMixin, "
        "or repeat rows with --repeat",
        obeys=(ANSWER, TEXT),
    ),
    "axolotl": Trainer(
        _axolotl,
        _MESSAGES,
        "axolotl drops the column weight, and takes the weight of a message for true or false: "
        "repeat rows with --repeat",
    ),
    "llamafactory": Trainer(
        _llamafactory,
        _MESSAGES,
        "LLaMA-Factory drops the column weight, and its v1 trainer divides weights away: "
        "repeat rows with --repeat",
        obeys=(ANSWER, TEXT),
    ),
    "messages": Trainer(None, _MESSAGES),
    "parquet": Trainer(None, {CHAT: (), ANSWER: (), TEXT: ()}),
}
