"""A plan and its weights inside Transformers' own ``Trainer``, or TRL's ``SFTTrainer``::

    from stages.export.trainer import PlanMixin, plan_arguments, plan_rows

    class PlannedTrainer(PlanMixin, SFTTrainer):
        pass

    trainer = PlannedTrainer(
        model,
        allocation="allocation",
        args=SFTConfig(**plan_arguments("allocation"), learning_rate=2e-5),
        train_dataset=plan_rows("allocation", tokenizer),
        processing_class=tokenizer,
    )

Each rank sees at each step the rows that the plan gives it, and a step minimises (1/B) sum_i w_i l_i with
the plan's constant B, the examples of a full step, and l_i the mean loss of example i's response tokens
(DESIGN section 6). The trainer divides by the accumulation, and DDP, FSDP and DeepSpeed average over the
ranks; so a micro-batch hands them its own sum, divided by the examples of a full micro-batch. Tested with
TRL 1.16.0 and Transformers 5.24.0.

Shapes: B examples of a micro-batch, T tokens of its longest, S supervised tokens in all, V vocabulary.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, Sampler

from formats.allocation import Allocation
from formats.errors import SettingError
from formats.fingerprints import digest
from formats.rendering import Renderer
from stages.export.rows import open_data

WEIGHT = "plan_weight"
Place = tuple[int, float]  # position in the data set, weight

if TYPE_CHECKING:
    from transformers import Trainer as _Base
else:
    _Base = object


def plan_arguments(allocation: Allocation | str | os.PathLike[str]) -> dict[str, Any]:
    """What ``TrainingArguments`` or ``SFTConfig`` must say for the plan to be followed.

    Raises:
        ArtifactError: there is no such allocation.
    """
    plan = _opened(allocation)
    return {
        "per_device_train_batch_size": plan.micro_batch,
        "gradient_accumulation_steps": plan.accumulation,
        "num_train_epochs": plan.epochs,
    }


def plan_rows(
    allocation: Allocation | str | os.PathLike[str],
    tokenizer: Any,
    *,
    data: tuple[str, ...] = (),
    cache_dir: str | None = None,
) -> Any:
    """A ``datasets.Dataset`` of the plan's rows, rendered as they were scored, each once.

    Columns: ``id``, ``input_ids`` and ``labels``, -100 where nothing is learned. TRL takes it as it is.
    It is kept in the cache folder of the ``datasets`` library and shared by the ranks of a machine.

    Args:
        data: where the data files are now, in the order given to score.
        cache_dir: another cache folder.

    Raises:
        ArtifactError, DataError, DataChangedError: as ``stages.export.export``.
    """
    import datasets

    plan = _opened(allocation)
    rendering = plan.header.extra["rendering"]
    render = Renderer(
        tokenizer, max_length=rendering["max_length"], chat_template=rendering["chat_template"]
    )

    def rows(key: str) -> Iterator[dict[str, Any]]:
        planned = {
            row for rank in range(plan.ranks) for batch in plan.rank(rank) for row in batch.rows
        }
        with open_data(plan.header, plan.path.absolute().parent, data) as dataset:
            for row in sorted(planned):
                one = render(dataset[row])
                labels = [
                    int(token) if learned else -100
                    for token, learned in zip(one.input_ids, one.supervised, strict=True)
                ]
                identity = dataset[row].id.hex()
                yield {"id": identity, "input_ids": one.input_ids.tolist(), "labels": labels}

    key = digest([plan.header.key, render.fingerprint(), tokenizer.get_vocab()])
    return datasets.Dataset.from_generator(
        rows, cache_dir=cache_dir, gen_kwargs={"key": key}, fingerprint=key[:16]
    )


class PlanMixin(_Base):
    """Follows an allocation; stands before the trainer's class among the bases.

    Args:
        allocation: the plan.
        kwargs: the trainer's own. ``train_dataset`` must have a column ``id`` with the rows' ids, as
            ``plan_rows`` and ``cluster-cli export`` write it; order and number of its rows do not matter.

    Raises:
        ArtifactError: the allocation is missing or damaged.
        SettingError: the arguments or the number of processes contradict the plan, or the data set lacks
            a row of it.
    """

    loss_is_scaled_for_ga = False  # Transformers 5.19 and later; before, the attribute set below

    def __init__(
        self, *args: Any, allocation: Allocation | str | os.PathLike[str], **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.plan = _opened(allocation)
        self.model_accepts_loss_kwargs = False  # the trainer then divides by the accumulation
        _check(self.plan, self.args)
        self._plan_positions = _positions(self.plan, self.args.process_index, self.train_dataset)

    def get_train_dataloader(self) -> DataLoader:
        """One epoch of this rank's micro-batches; nobody else deals them out again."""
        dataset, collate = self.train_dataset, self.data_collator
        if hasattr(dataset, "column_names"):
            dataset = self._remove_unused_columns(dataset, description="training")
        return _PlanLoader(
            _Weighed(dataset),
            batch_sampler=_PlanSampler(self.plan, self.args.process_index, self._plan_positions),
            collate_fn=lambda items: _collated(items, collate),
            num_workers=self.args.dataloader_num_workers,
            pin_memory=self.args.dataloader_pin_memory,
        )

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """(1/b) sum_i w_i l_i, b the examples of a full micro-batch; evaluation is the trainer's own."""
        weights = inputs.pop(WEIGHT, None)
        if weights is None:
            return super().compute_loss(
                model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items_in_batch
            )
        labels_BT = inputs.pop("labels")
        if len(labels_BT) != len(weights):
            raise SettingError(
                f"the collator made {len(labels_BT)} rows of {len(weights)} examples",
                fix="leave packing and padding_free off",
            )
        outputs = model(**inputs, use_cache=False)
        share = self.plan.batch / (self.plan.ranks * self.plan.accumulation)
        loss = plan_loss(outputs.logits, labels_BT, weights) / share
        return (loss, outputs) if return_outputs else loss


def plan_loss(
    logits_BTV: torch.Tensor, labels_BT: torch.Tensor, weights: list[float]
) -> torch.Tensor:
    """sum_i w_i l_i, a float32 scalar; l_i is 0 where an example has no label."""
    targets_BT = labels_BT[:, 1:]
    learned_BT = targets_BT != -100
    losses_S = functional.cross_entropy(
        logits_BTV[:, :-1][learned_BT].float(), targets_BT[learned_BT], reduction="none"
    )
    weight_B = torch.tensor(weights, dtype=torch.float32, device=losses_S.device)
    share_B = weight_B / learned_BT.sum(dim=1).clamp(min=1)
    return torch.dot(losses_S, share_B[learned_BT.nonzero()[:, 0]])


class _PlanSampler(Sampler[list[Place]]):
    """One rank's micro-batches of one epoch."""

    def __init__(self, plan: Allocation, rank: int, positions: dict[str, int]) -> None:
        self._plan = plan
        self._rank = rank
        self._positions = positions
        self._epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self._epoch = epoch % self._plan.epochs

    def __len__(self) -> int:
        return self._plan.steps_per_epoch * self._plan.accumulation

    def __iter__(self) -> Iterator[list[Place]]:
        first = self._epoch * self._plan.steps_per_epoch
        for batch in itertools.islice(self._plan.rank(self._rank, first), len(self)):
            found = [self._positions[identity] for identity in batch.ids]
            # A rank without a row still takes part: the others wait for it in every collective.
            yield list(zip(found, batch.weights, strict=True)) or [(0, 0.0)]


class _PlanLoader(DataLoader):
    """Tells its sampler the epoch; Transformers asks the loader."""

    def set_epoch(self, epoch: int) -> None:
        self.batch_sampler.set_epoch(epoch)  # type: ignore[union-attr]


class _Weighed(Dataset):
    """The data set's items by (position, weight), each with its weight."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, place: Place) -> tuple[Any, float]:
        return self._dataset[place[0]], place[1]


def _collated(items: list[tuple[Any, float]], collate: Any) -> dict[str, Any]:
    # Weights stay plain numbers: under DeepSpeed the trainer casts tensors to bfloat16.
    return {**collate([item for item, _ in items]), WEIGHT: [weight for _, weight in items]}


def _opened(allocation: Allocation | str | os.PathLike[str]) -> Allocation:
    if isinstance(allocation, Allocation):
        return allocation
    return Allocation.open(Path(allocation))


def _check(plan: Allocation, args: Any) -> None:
    wanted = {**plan_arguments(plan), "world_size": plan.ranks}
    wrong = [
        f"{name} is {getattr(args, name)}, the plan says {value}"
        for name, value in wanted.items()
        if getattr(args, name) != value
    ]
    if wrong:
        raise SettingError(
            f"{plan.path}: {'; '.join(wrong)}",
            fix="give the arguments that plan_arguments returns, and start as many processes",
        )


def _positions(plan: Allocation, rank: int, dataset: Any) -> dict[str, int]:
    """Where the rows of a rank stand in the data set, by id."""
    if "id" not in (getattr(dataset, "column_names", None) or ()):
        raise SettingError(
            "the training data have no column id once they are prepared",
            fix="make them with plan_rows, and leave packing off",
        )
    there = {identity: number for number, identity in enumerate(dataset["id"])}
    wanted = {identity for batch in plan.rank(rank) for identity in batch.ids}
    if missing := sorted(wanted - there.keys()):
        raise SettingError(
            f"the training data lack {len(missing)} of the planned rows, the first with id {missing[0]}",
            fix="the trainer may have dropped them as too long: raise max_length, or use plan_rows",
        )
    return {identity: there[identity] for identity in wanted}
