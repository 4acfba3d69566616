"""The meters: does a signature follow the exact gradients, and does a cluster mean a lesson?

Shapes: N sampled examples, D numbers of a signature, B examples of a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from formats.rendering import Rendered
from stages.batching import batches
from stages.score.batches import Signer, pad, sign_rows
from stages.score.controls import losses
from stages.score.head import Head, last_hidden
from stages.score.layers import choose_layers, linear_shape
from stages.score.signers import GradientSigner, HeadSigner, backward_pass

EXACT_RANK, EXACT_SEED = 256, 12345


def spread_out(signer: GradientSigner) -> GradientSigner:
    """Gives every layer entries of its own: nothing is sketched, D = layers x k x k."""
    entries = signer.rank**2
    for number, layer in enumerate(signer.layers):
        layer.fold.bucket.copy_(torch.arange(entries) + number * entries)
        layer.fold.sign.fill_(1)
    signer.dims = entries * len(signer.layers)
    return signer


def exact_signer(model: Any) -> GradientSigner:
    """A projection of every linear layer to rank 256, unsketched, with random numbers of its own.

    Layers no wider than that are only rotated, so for them it is the exact gradient.
    """
    return spread_out(GradientSigner(model, rank=EXACT_RANK, dims=1, seed=EXACT_SEED))


def sign_together(
    signers: Sequence[GradientSigner], rows: Sequence[Rendered], budget: int
) -> list[np.ndarray]:
    """Signatures of several signers hooked on one model, from one backward pass per batch.

    Returns:
        For each signer (N, D) float16 unit rows.
    """
    parts: list[dict[int, np.ndarray]] = [{} for _ in signers]
    first = signers[0]
    device = str(first.head.linear.weight.device)
    for members in batches([len(row.input_ids) for row in rows], budget):
        batch = pad([rows[i] for i in members], device)
        for signer in signers:
            signer.start(batch)
        backward_pass(first.model, first.head, batch)
        for part, signer in zip(parts, signers, strict=True):
            part.update(zip(members, unit(signer.total_BD), strict=True))
    return [np.stack([part[i] for i in range(len(rows))]) for part in parts]


def unit(raw_BD: torch.Tensor) -> np.ndarray:
    """Rows of length one, float16, on the host."""
    return (raw_BD / raw_BD.norm(dim=1, keepdim=True)).cpu().numpy().astype(np.float16)


def cosines(signature_ND: np.ndarray) -> np.ndarray:
    """(N, N) float32 cosines of unit rows, without a float32 copy of a wide matrix."""
    total = np.zeros((len(signature_ND), len(signature_ND)), np.float32)
    for start in range(0, signature_ND.shape[1], 65_536):
        part = signature_ND[:, start : start + 65_536].astype(np.float32)
        total += part @ part.T
    return total


def agreement(got: np.ndarray, exact: np.ndarray, source: np.ndarray) -> dict[str, float]:
    """How well cosines follow the exact ones.

    Args:
        got, exact: (N, N) cosines.
        source: (N,) where each example is from.

    Returns:
        ``correlation``: Spearman's, over all pairs; ``within_source``: over pairs of one source;
        ``neighbours``: recall of the ten nearest neighbours.
    """
    from scipy.stats import spearmanr

    upper = np.triu_indices(len(exact), 1)
    same = source[upper[0]] == source[upper[1]]
    outside = np.where(np.eye(len(exact), dtype=bool), -np.inf, 0)
    near = [np.argsort(-(matrix + outside), axis=1)[:, :10] for matrix in (got, exact)]
    found = [len(set(a) & set(b)) / near[0].shape[1] for a, b in zip(*near, strict=True)]
    return {
        "correlation": float(spearmanr(got[upper], exact[upper])[0]),
        "within_source": float(spearmanr(got[upper][same], exact[upper][same])[0]),
        "neighbours": float(np.mean(found)),
    }


CANDIDATES: tuple[tuple[str, dict[str, Any]], ...] = (
    # cheapest first
    ("head, rank 64", {"kind": "head", "rank": 64, "dims": 4096}),
    ("gradient, rank 16", {"rank": 16, "dims": 4096}),
    ("gradient, rank 32", {"rank": 32, "dims": 4096}),
    ("gradient, rank 64", {"rank": 64, "dims": 4096}),
    ("gradient, rank 128", {"rank": 128, "dims": 4096}),
)


def compare_candidates(
    model: Any, rows: Sequence[Rendered], budget: int
) -> tuple[list[dict[str, Any]], dict[str, np.ndarray]]:
    """Agreement of every candidate with exact gradients on a sample, cheapest first.

    Args:
        model: on its device; hooks are added to it.
        rows: N usable examples.
        budget: padded tokens in a batch.

    Returns:
        One entry per candidate: its settings, ``agreement``'s figures, and ``cost``; and the
        signatures by candidate, (N, D) float16 unit rows.
    """
    hooked = {n: GradientSigner(model, seed=0, **s) for n, s in CANDIDATES if "kind" not in s}
    exact, *signed = sign_together([exact_signer(model), *hooked.values()], rows, budget)
    signatures = dict(zip(hooked, signed, strict=True))
    for name, settings in CANDIDATES:
        if settings.get("kind") == "head":
            shape = {key: value for key, value in settings.items() if key != "kind"}
            device = str(next(model.parameters()).device)
            head = HeadSigner(model, seed=0, **shape)
            raw, _ = sign_rows(rows, Signer(head, device, budget))
            signatures[name] = unit(torch.from_numpy(raw))
    matrix, one_source = cosines(exact), np.zeros(len(rows), int)
    lines = []
    for name, settings in CANDIDATES:
        figures = agreement(cosines(signatures[name]), matrix, one_source)
        del figures["within_source"]
        line = {"signature": name, "settings": settings, **figures, "cost": cost(model, settings)}
        lines.append(line)
    return lines, signatures


def cost(model: Any, settings: dict[str, Any]) -> float:
    """FLOPs of a signature as a fraction of a training step's, from the layers' shapes.

    Per token a training step costs 6 per weight; forward 2, activation gradients 2, and each
    projection to k columns 2 k per input or output of a layer. The head is counted at every token.
    """
    shapes = [linear_shape(model.get_submodule(name)) for name in choose_layers(model, "all")]
    sizes = [shape for shape in shapes if shape is not None]
    layers = sum(outputs * inputs for outputs, inputs in sizes)
    vocabulary, width = model.get_output_embeddings().weight.shape
    rank, head = settings["rank"], vocabulary * width
    if settings.get("kind") == "head":
        spent = 2 * layers + 2 * head + 2 * rank * (vocabulary + width)
    else:
        ends = sum(outputs + inputs for outputs, inputs in sizes)
        spent = 4 * layers + 4 * head + 2 * rank * ends + 2 * rank**2 * len(sizes)
    return spent / (6 * (layers + head))


def recommend(lines: Sequence[dict[str, Any]], goal: float) -> dict[str, Any]:
    """The cheapest candidate whose correlation reaches the goal, else the most faithful one."""
    enough = [line for line in lines if line["correlation"] >= goal]
    return enough[0] if enough else max(lines, key=lambda line: line["correlation"])


def lesson_test(
    load: Callable[[], Any],
    rows: Sequence[Rendered],
    label_N: np.ndarray,
    *,
    clusters: int = 4,
    learning_rate: float = 1e-3,
    device: str = "cpu",
) -> list[dict[str, float]]:
    """Is a cluster one lesson? A step on some of its members must help the others more than outsiders.

    For each of the largest clusters: one normalised gradient step on half of its members, then how
    much the mean loss of the other half fell, and how much that of as many outsiders fell.

    Args:
        load: gives a fresh, trainable model on its device.
        rows: N usable examples.
        label_N: their clusters.
        clusters: how many are tried.
        learning_rate: length of the step, as a fraction of the weights' own length.

    Returns:
        For each cluster ``members`` and ``others``: the fall of the loss in nats (negative: it rose).
    """
    results = []
    for cluster in np.argsort(-np.bincount(label_N))[:clusters]:
        inside, outside = np.flatnonzero(label_N == cluster), np.flatnonzero(label_N != cluster)
        half = len(inside) // 2
        if not half or not len(outside):
            continue
        rng = np.random.default_rng(0)
        inside = rng.permutation(inside)
        held = [rows[i] for i in inside[half:]]
        others = [rows[i] for i in rng.permutation(outside)[: len(held)]]
        model = load()
        before = [mean_loss(model, group, device) for group in (held, others)]
        _step(model, [rows[i] for i in inside[:half]], learning_rate, device)
        after = [mean_loss(model, group, device) for group in (held, others)]
        results.append({"members": before[0] - after[0], "others": before[1] - after[1]})
    return results


@torch.no_grad()
def mean_loss(model: Any, rows: Sequence[Rendered], device: str) -> float:
    """Mean over examples of the mean loss of their response tokens."""
    head = Head(model)
    total = 0.0
    for row in rows:
        batch = pad([row], device)
        total += float(losses(head, last_hidden(model, batch), batch))
    return total / len(rows)


def _step(model: Any, rows: Sequence[Rendered], size: float, device: str) -> None:
    """One step against the gradient, of a length relative to the weights'."""
    model.requires_grad_(True)
    for row in rows:
        batch = pad([row], device)
        labels = torch.where(batch.supervised, batch.input_ids, -100)
        loss = model(input_ids=batch.input_ids, labels=labels, use_cache=False).loss
        (loss / len(rows)).backward()
    with torch.no_grad():
        weights = [weight for weight in model.parameters() if weight.grad is not None]
        length = torch.stack([weight.norm() for weight in weights]).norm()
        slope = torch.stack([weight.grad.norm() for weight in weights if weight.grad is not None])
        for weight in weights:
            assert weight.grad is not None
            weight -= size * length / slope.norm() * weight.grad
            weight.grad = None
