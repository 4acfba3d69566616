"""The kinds of signature: a batch of examples in, one vector per example out.

Shape legend: B examples, T tokens, I layer inputs, O layer outputs, k projection rank, D numbers kept.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from formats.errors import ModelError
from stages.score.head import Batch, Head, Positions, last_hidden
from stages.score.layers import choose_layers, linear_shape
from stages.score.projections import Fold, projection

Signed = tuple[torch.Tensor, torch.Tensor]  # (B, D) float32 not yet normalised, (B,) float32 losses


@dataclass
class _Layer:
    """One hooked linear layer with its fixed projections."""

    name: str
    inputs_Ik: torch.Tensor
    outputs_Ok: torch.Tensor
    fold: Fold


class GradientSigner:
    """Projected gradients of all chosen linear layers (DESIGN section 5).

    Weights are frozen, so the backward pass computes activation gradients alone. A forward hook
    projects each layer's input, a gradient hook its output gradient; their product, summed over
    tokens, is the projected weight gradient of every example at once. Losses are summed over the
    batch, so an example's signature does not depend on its companions.

    Args:
        model: an ``AutoModelForCausalLM`` on its device.
        rank: k, columns of each projection.
        dims: D, numbers kept.
        seed: of projections and sketch.
        layers: ``all``, ``last:N`` or a regular expression over module names.

    Raises:
        SettingError: no linear layer matches ``layers``.
    """

    def __init__(self, model: Any, *, rank: int, dims: int, seed: int, layers: str = "all") -> None:
        self.model = model.requires_grad_(False)
        self.head = Head(model)
        self.dims = dims
        self.rank = rank
        self.seed = seed
        self.total_BD = torch.empty(0)
        self._matrices: dict[tuple[str, ...], torch.Tensor] = {}
        self._shared: tuple[torch.Tensor, torch.Tensor, torch.Tensor] | None = None
        self.layers: list[_Layer] = []
        for name in choose_layers(model, layers):
            module = model.get_submodule(name)
            self.layers.append(self._layer(name, module))
            module.register_forward_pre_hook(_start_graph)
            module.register_forward_hook(self._hook(self.layers[-1]))

    def __call__(self, batch: Batch) -> Signed:
        """Signatures and losses of a batch."""
        self.start(batch)
        loss_B = backward_pass(self.model, self.head, batch)
        return self.total_BD, loss_B

    def start(self, batch: Batch) -> None:
        """Makes ready for one backward pass; afterwards ``total_BD`` holds the signatures."""
        self.total_BD = torch.zeros(len(batch.input_ids), self.dims, device=batch.input_ids.device)
        self._shared = None

    def _layer(self, name: str, module: Any) -> _Layer:
        shape = linear_shape(module)
        assert shape is not None  # chosen for having one
        size_O, size_I = shape
        weight = module.weight
        # Layers that read the same tensor share its projection: one matmul for q, k and v.
        parent = name.rpartition(".")[0]
        inputs_Ik = self._matrix(size_I, weight, "inputs", parent, str(size_I))
        outputs_Ok = self._matrix(size_O, weight, "outputs", name)
        fold = Fold.draw(self.rank**2, self.dims, self.seed, name, str(weight.device))
        return _Layer(name, inputs_Ik, outputs_Ok, fold)

    def _matrix(self, size: int, like: torch.Tensor, *names: str) -> torch.Tensor:
        if names not in self._matrices:
            matrix = projection(size, self.rank, self.seed, *names)
            self._matrices[names] = matrix.to(like.device, like.dtype)
        return self._matrices[names]

    def _hook(self, layer: _Layer) -> Callable[[Any, tuple[torch.Tensor, ...], torch.Tensor], None]:
        def forward(module: Any, inputs: tuple[torch.Tensor, ...], output: torch.Tensor) -> None:
            if not output.requires_grad:
                return
            if inputs[0].dim() != 3:
                raise ModelError(
                    f"layer {layer.name} mixes the tokens of different examples",
                    fix=f"leave it out: --layers with a pattern that does not match {layer.name}",
                )
            input_BTk = self._project_input(inputs[0], layer.inputs_Ik)

            def backward(gradient_BTO: torch.Tensor) -> None:
                gradient_BTk = gradient_BTO @ layer.outputs_Ok
                product_Bkk = torch.bmm(gradient_BTk.transpose(1, 2), input_BTk)
                layer.fold.add(self.total_BD, product_Bkk.flatten(1).float())

            output.register_hook(backward)

        return forward

    def _project_input(self, input_BTI: torch.Tensor, matrix_Ik: torch.Tensor) -> torch.Tensor:
        # The very same tensor and matrix as for the layer before: q, k and v, or gate and up.
        if self._shared and self._shared[0] is input_BTI and self._shared[1] is matrix_Ik:
            return self._shared[2]
        product_BTk = input_BTI.detach() @ matrix_Ik
        self._shared = (input_BTI, matrix_Ik, product_BTk)
        return product_BTk


def backward_pass(model: Any, head: Head, batch: Batch) -> torch.Tensor:
    """Forward, and backward from the sum of the examples' losses; returns those, (B,) float32.

    Gradients arrive at whatever hooks are registered on the model.
    """
    hidden_BTE = last_hidden(model, batch)
    at = Positions.of(batch)
    selected_SE = hidden_BTE[at.row_S, at.token_S].detach()
    loss_B, gradient_SE = head.gradient(selected_SE, at, len(batch.input_ids))
    gradient_BTE = torch.zeros_like(hidden_BTE)
    gradient_BTE[at.row_S, at.token_S] = gradient_SE
    hidden_BTE.backward(gradient_BTE)
    return loss_B


class HeadSigner:
    """Head gradient times last hidden state, both projected: no backward pass (DESIGN section 5).

    ``dl/dh`` is needed only in its projection, so the vocabulary's error is multiplied with the
    projected head (V x k) and the gradient itself is never formed.

    Args:
        model: an ``AutoModelForCausalLM`` on its device.
        rank: k.
        dims: D.
        seed: of projections and sketch.
    """

    def __init__(self, model: Any, *, rank: int, dims: int, seed: int) -> None:
        self.model = model.requires_grad_(False)
        self.head = Head(model)
        self.dims = dims
        weight_VE = self.head.linear.weight
        size = weight_VE.shape[1]
        self.hidden_Ek = projection(size, rank, seed, "hidden").to(weight_VE)
        self.head_Vk = weight_VE @ projection(size, rank, seed, "head gradient").to(weight_VE)
        self.fold = Fold.draw(rank**2, dims, seed, "head", str(weight_VE.device))

    @torch.no_grad()
    def __call__(self, batch: Batch) -> Signed:
        """Signatures and losses of a batch."""
        rows, rank = len(batch.input_ids), self.hidden_Ek.shape[1]
        at = Positions.of(batch)
        hidden_SE = last_hidden(self.model, batch)[at.row_S, at.token_S]
        loss_B = torch.zeros(rows, device=hidden_SE.device)
        product_Bkk = torch.zeros(rows, rank, rank, device=hidden_SE.device)
        for part, loss_s, error_sV in self.head.errors(hidden_SE, at):
            loss_B.index_add_(0, at.row_S[part], loss_s)
            gradient_sk = error_sV.to(self.head_Vk.dtype) @ self.head_Vk
            hidden_sk = hidden_SE[part] @ self.hidden_Ek
            for row in at.row_S[part].unique_consecutive():
                mine = at.row_S[part] == row
                product_Bkk[row] += (gradient_sk[mine].T @ hidden_sk[mine]).float()
        total_BD = torch.zeros(rows, self.dims, device=hidden_SE.device)
        self.fold.add(total_BD, product_Bkk.flatten(1))
        return total_BD, loss_B


def _start_graph(module: Any, inputs: tuple[torch.Tensor, ...]) -> None:
    """With frozen weights nothing asks for gradients, so the first chosen layer's input does.

    Layers before it stay out of the graph: the backward pass ends where it is no longer needed.
    """
    if torch.is_grad_enabled() and not inputs[0].requires_grad:
        inputs[0].requires_grad_()
