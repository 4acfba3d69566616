"""The training loop: one optimizer step after the other, and what is worth knowing about each."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

from formats.errors import NotFiniteError
from stages.train.batches import Batch
from stages.train.clock import Clock
from stages.train.engine import gradient_norm, plain_gradient_norm, set_learning_rate
from stages.train.loss import weighted_loss

# What each rank tells the others once a step, in this order.
_TOLD = (
    *("loss", "examples", "tokens", "padded_tokens", "supervised_tokens"),
    *("finite", "stop", "save", "wait"),
)


@dataclass
class Totals:
    """Sums over the run, equal on all ranks."""

    steps: int = 0
    examples: int = 0
    tokens: int = 0
    padded_tokens: int = 0
    supervised_tokens: int = 0
    first_loss: float | None = None
    last_loss: float | None = None

    def add(self, line: dict[str, Any]) -> None:
        """Counts one step."""
        self.steps += 1
        for name in ("examples", "tokens", "padded_tokens", "supervised_tokens"):
            setattr(self, name, getattr(self, name) + line[name])
        self.last_loss = line["loss"]
        if self.first_loss is None:
            self.first_loss = line["loss"]


@dataclass
class Loop:
    """Runs optimizer steps.

    Attributes:
        engine: DeepSpeed's.
        rate: the learning rate of a step; None when DeepSpeed's own scheduler sets it.
        share: examples of a full micro-batch, on average.
        accumulation, ranks: the plan's shape; the product of the three is the constant B.
        device: where to compute.
        clock: where the seconds went.
        totals: what was done so far.
        wishes: whether this rank wants to stop, and to save; asked once a step.
        stop, save: whether any rank wanted to in the step just taken; equal on all ranks.
    """

    engine: Any
    rate: Callable[[int], float] | None
    share: float
    accumulation: int
    ranks: int
    device: str
    clock: Clock
    totals: Totals = field(default_factory=Totals)
    wishes: Callable[[], tuple[bool, bool]] = lambda: (False, False)
    stop: bool = False
    save: bool = False
    _waited: float = 0.0

    def run(self, steps: Iterable[list[Batch]], after: Callable[[dict[str, Any]], bool]) -> None:
        """Takes the steps; ``after`` gets each one's line for ``metrics.jsonl`` and says whether to stop.

        Raises:
            NotFiniteError: a loss or the gradient is NaN or infinite, on any rank; raised by all.
        """
        began = time.perf_counter()
        self.clock.restart()
        for batches in steps:
            self.clock.mark("data")
            line = self.step(batches)
            ended = time.perf_counter()
            line["seconds"] = ended - began
            line["tokens_per_second"] = line["tokens"] / (ended - began)
            self.totals.add(line)
            if after(line):
                break
            began = time.perf_counter()  # what `after` takes, such as a checkpoint, is no training
            self.clock.restart()

    def step(self, batches: list[Batch]) -> dict[str, Any]:
        """One optimizer step."""
        plan = batches[0].plan
        rate = self.rate(plan.step) if self.rate else None
        if rate is not None:
            set_learning_rate(self.engine, rate)
        losses, of_tokens = [], []
        for batch in batches:
            loss, token_losses = self._forward(batch)
            losses.append(loss.detach())
            of_tokens.append(token_losses)
            if batch is not batches[-1]:
                self._backward(loss)
                self._advance()
        told = self._tell(batches, [float(each) for each in losses], of_tokens)
        self._backward(loss)
        norm = self._finish(batches)
        seconds = self.clock.collect()
        self._waited = seconds["wait"]
        total = {name: sum(rank[place] for rank in told) for place, name in enumerate(_TOLD)}
        self.stop, self.save = total["stop"] > 0, total["save"] > 0
        counts = {name: int(total[name]) for name in _TOLD[1:5]}
        return {
            "step": plan.step,
            "epoch": plan.epoch,
            "loss": total["loss"] / (self.accumulation * self.ranks),
            "learning_rate": rate if rate is not None else float(self.engine.get_lr()[0]),
            "grad_norm": norm,
            **counts,
            "wait_seconds": [round(rank[-1], 6) for rank in told],
        }

    def _forward(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        losses = weighted_loss(self.engine, batch, self.share, self.device)
        self.clock.mark("forward")
        return losses

    def _backward(self, loss: torch.Tensor) -> None:
        self.engine.backward(loss)
        self.clock.mark("backward")

    def _advance(self) -> None:
        self.engine.step()
        self.clock.mark("optimizer")

    def _tell(
        self, batches: list[Batch], losses: list[float], of_tokens: list[torch.Tensor]
    ) -> list[list[float]]:
        """Every rank's figures, on every rank; also the moment at which all wait for the slowest.

        ``wait`` is the one of the step before: this step's is only known afterwards.
        """
        finite = all(math.isfinite(loss) for loss in losses)
        mine = [
            sum(losses),
            sum(len(batch.plan.rows) for batch in batches),
            sum(batch.tokens for batch in batches),
            sum(batch.padded_tokens for batch in batches),
            sum(len(batch.target) for batch in batches if batch.plan.rows),
            float(finite),
            *map(float, self.wishes()),
            self._waited,
        ]
        tensor = torch.tensor(mine, dtype=torch.float64, device=self.device)
        told = [torch.empty_like(tensor) for _ in range(self.ranks)]
        dist.all_gather(told, tensor)
        self.clock.mark("wait")
        table = [rank.tolist() for rank in told]
        if not all(rank[5] for rank in table):
            bad = [
                place
                for batch, each in zip(batches, of_tokens, strict=True)
                for place in _bad_places(batch, each)
            ]
            self._not_finite("the loss", bad, batches[0].plan.step)
        return table

    def _finish(self, batches: list[Batch]) -> float | None:
        """The optimizer's step; gives the gradient's norm before clipping."""
        plain = not (
            self.engine.zero_optimization()
            or self.engine.bfloat16_enabled()
            or self.engine.fp16_enabled()
        )
        norm = plain_gradient_norm(self.engine) if plain else None
        self._advance()
        known = gradient_norm(self.engine)
        norm = norm if known is None else known
        if norm is not None and not math.isfinite(norm):
            if (
                not self.engine.fp16_enabled()
            ):  # there, the loss scale goes down and the step is skipped
                self._not_finite("the gradient", _places(batches), batches[0].plan.step)
            return None
        return norm

    def _not_finite(self, what: str, mine: list[tuple[int, str]], step: int) -> None:
        told: list[Any] = [None] * self.ranks
        dist.all_gather_object(told, mine)
        named = "; ".join(
            f"rank {rank}: " + ", ".join(f"row {row} ({id_[:12]})" for row, id_ in places)
            for rank, places in enumerate(told)
            if places
        )
        raise NotFiniteError(
            f"step {step}: {what} is not finite, on {named}",
            fix="look at these rows, or lower --learning-rate",
            step=step,
            rows=[[row for row, _ in places] for places in told],
            ids=[[id_ for _, id_ in places] for places in told],
        )


def _places(batches: list[Batch]) -> list[tuple[int, str]]:
    """Row and id of every example."""
    return [p for batch in batches for p in zip(batch.plan.rows, batch.plan.ids, strict=True)]


def _bad_places(batch: Batch, token_losses: torch.Tensor) -> list[tuple[int, str]]:
    """Those of the examples whose own loss is not finite."""
    bad = {
        int(batch.example[s]) for s in torch.nonzero(~token_losses.isfinite()).flatten().tolist()
    }
    return [place for number, place in enumerate(_places([batch])) if number in bad]
