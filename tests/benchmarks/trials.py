"""Signatures and rows that were tried and are not part of the product, for the benchmarks' tables.

Shape legend: B examples, T tokens, S supervised positions, I inputs, E hidden size, k rank, D numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch

from formats.rendering import Rendered
from stages.score.head import Batch, Head, Positions, last_hidden
from stages.score.layers import choose_layers, linear_shape
from stages.score.projections import Fold, projection
from stages.score.signers import GradientSigner


class StraightThroughSigner:
    """The head's gradient passed unchanged to every layer that writes into the residual stream.

    Residual connections carry the gradient backwards nearly unchanged, so ``dl/dh`` at the end stands
    in for the output gradient of every attention and MLP output projection: no backward pass.
    """

    def __init__(self, model: Any, *, rank: int, dims: int, seed: int) -> None:
        self.model = model.requires_grad_(False)
        self.head = Head(model)
        self.dims, self.rank = dims, rank
        self.inputs: dict[str, torch.Tensor] = {}
        self.layers: list[tuple[str, Fold]] = []
        width = model.get_output_embeddings().weight.shape[1]
        self.outputs_Ek = projection(width, rank, seed, "residual")
        for name in choose_layers(model, r"o_proj|down_proj|c_proj"):
            module = model.get_submodule(name)
            shape = linear_shape(module)
            assert shape is not None
            self.layers.append((name, Fold.draw(rank**2, dims, seed, name, "cpu")))
            matrix_Ik = projection(shape[1], rank, seed, "inputs", name)
            module.register_forward_hook(self._keep(name, matrix_Ik))

    def _keep(self, name: str, matrix_Ik: torch.Tensor) -> Any:
        def hook(module: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            self.inputs[name] = inputs[0] @ matrix_Ik

        return hook

    @torch.no_grad()
    def __call__(self, batch: Batch) -> tuple[torch.Tensor, torch.Tensor]:
        """(B, D) signatures and (B,) losses."""
        at = Positions.of(batch)
        hidden_BTE = last_hidden(self.model, batch)
        loss_B, gradient_SE = self.head.gradient(
            hidden_BTE[at.row_S, at.token_S], at, len(batch.input_ids)
        )
        gradient_BTk = torch.zeros(*hidden_BTE.shape[:2], self.rank)
        gradient_BTk[at.row_S, at.token_S] = gradient_SE @ self.outputs_Ek
        total_BD = torch.zeros(len(batch.input_ids), self.dims)
        for name, fold in self.layers:
            product_Bkk = torch.bmm(gradient_BTk.transpose(1, 2), self.inputs[name])
            fold.add(total_BD, product_Bkk.flatten(1))
        return total_BD, loss_B


def cut_response(row: Rendered, tokens: int) -> Rendered:
    """Only the first response tokens, and nothing behind them."""
    places = np.flatnonzero(row.supervised)[:tokens]
    end = int(places[-1]) + 1
    return dataclasses.replace(
        row,
        input_ids=row.input_ids[:end],
        supervised=row.supervised[:end],
        response_tokens=len(places),
    )


def sample_response(row: Rendered, share: float, seed: int) -> Rendered:
    """Losses of a random part of the response tokens; all tokens are still read."""
    places = np.flatnonzero(row.supervised)
    count = max(1, round(len(places) * share))
    kept = np.random.default_rng(seed).choice(places, count, replace=False)
    supervised = np.zeros_like(row.supervised)
    supervised[kept] = True
    return dataclasses.replace(row, supervised=supervised, response_tokens=count)


def shallow(model: Any, depth: int) -> Any:
    """The model's first ``depth`` layers, straight into its last norm and head."""
    body = getattr(model, model.base_model_prefix)
    body.layers = torch.nn.ModuleList(list(body.layers)[:depth])
    model.config.num_hidden_layers = depth
    return model


class UnitFold(Fold):
    """Every module's part at length one: no module rules because its gradients are large."""

    def add(self, total_BD: torch.Tensor, product_BE: torch.Tensor) -> None:
        """Adds the sketch of the normalised product."""
        length_B1 = product_BE.norm(dim=1, keepdim=True).clamp(min=1e-30)
        super().add(total_BD, product_BE / length_B1)


def unit_modules(signer: GradientSigner) -> GradientSigner:
    """A signer whose modules all count the same, in every example."""
    for layer in signer.layers:
        layer.fold = UnitFold(layer.fold.bucket, layer.fold.sign)
    return signer


def adaptive(signer: GradientSigner, batches: Sequence[Batch], power: float) -> GradientSigner:
    """Rows and columns of every weight divided by a power of their root mean square gradient.

    Adafactor's factored second moments (Shazeer and Stern 2018, arXiv:1804.04235), measured over the
    tokens of a few batches: power 1 divides a gradient as Adam does, 0.5 makes inner products of two
    gradients those of one with Adam's update by the other. It goes into the projections: no run time.
    """
    squares: dict[int, list[torch.Tensor]] = {}

    def note(key: int, which: int) -> Any:
        def hook(tensor: torch.Tensor) -> None:
            flat = tensor.detach().reshape(-1, tensor.shape[-1])
            squares.setdefault(key, [torch.zeros(1), torch.zeros(1)])
            squares[key][which] = squares[key][which] + flat.square().sum(0)

        return hook

    def forward(key: int) -> Any:
        def hook(module: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            note(key, 0)(inputs[0])
            output.register_hook(note(key, 1))

        return hook

    modules = [signer.model.get_submodule(layer.name) for layer in signer.layers]
    handles = [m.register_forward_hook(forward(i)) for i, m in enumerate(modules)]
    for batch in batches:
        signer(batch)
    for handle in handles:
        handle.remove()
    for i, layer in enumerate(signer.layers):
        scale_I, scale_O = (
            (s / s.mean() + 1e-4).rsqrt() ** power * s.mean().rsqrt() ** power for s in squares[i]
        )
        layer.inputs_Ik = layer.inputs_Ik * scale_I[:, None]
        layer.outputs_Ok = layer.outputs_Ok * scale_O[:, None]
    return signer
