"""Signatures against plain autograd: one example at a time, full weight gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from formats.errors import ModelError, SettingError
from stages.score.head import Batch, Head, Positions, last_hidden
from stages.score.layers import choose_layers, coverage
from stages.score.signers import GradientSigner, HeadSigner
from tests import tiny

LENGTHS = (14, 9, 7, 11)
RESPONSES = (5, 3, 1, 8)


def make_batch(rows: tuple[int, ...] = (0, 1, 2, 3), pad_to: int = 14) -> Batch:
    """The same four examples in any order, padded to any length."""
    ids = torch.zeros(len(rows), pad_to, dtype=torch.int64)
    mask = torch.zeros_like(ids)
    supervised = torch.zeros(len(rows), pad_to, dtype=torch.bool)
    for i, row in enumerate(rows):
        length = LENGTHS[row]
        random = torch.Generator().manual_seed(row)
        ids[i, :length] = torch.randint(3, 259, (length,), generator=random)
        mask[i, :length] = 1
        supervised[i, length - RESPONSES[row] : length] = True
    return Batch(ids, mask, supervised)


def alone(row: int) -> Batch:
    return make_batch((row,), LENGTHS[row])


def reference_loss(model: Any, row: int) -> torch.Tensor:
    """Mean negative log-likelihood of one example's response tokens, by the whole model's forward."""
    batch = alone(row)
    logits = model(input_ids=batch.input_ids).logits[0, :-1].float()
    return torch.nn.functional.cross_entropy(
        logits[batch.supervised[0, 1:]], batch.input_ids[0, 1:][batch.supervised[0, 1:]]
    )


def exact_gradients(model: Any) -> torch.Tensor:
    """(4, parameters) full gradients of all linear layers but the head."""
    rows = []
    for row in range(4):
        model.zero_grad()
        reference_loss(model, row).backward()
        weights = [model.get_submodule(name).weight for name in choose_layers(model, "all")]
        rows.append(torch.cat([weight.grad.flatten() for weight in weights]))
    return torch.stack(rows)


def family(name: str) -> Any:
    """Tiny models of families that differ in layers, heads or logits."""
    import transformers as t

    torch.manual_seed(0)
    common: dict[str, Any] = {"vocab_size": 259, "pad_token_id": 0, "eos_token_id": 2}
    llama = dict(
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=8,
        **common,
    )
    return {
        "llama": lambda: t.LlamaForCausalLM(t.LlamaConfig(**llama)),
        "tied": lambda: t.LlamaForCausalLM(t.LlamaConfig(**llama, tie_word_embeddings=True)),
        "gpt2": lambda: t.GPT2LMHeadModel(
            t.GPT2Config(n_embd=32, n_layer=2, n_head=4, bos_token_id=1, **common)
        ),
        "gemma2": lambda: t.Gemma2ForCausalLM(
            t.Gemma2Config(**llama, final_logit_softcapping=3.0, sliding_window=8)
        ),
        "granite": lambda: t.GraniteForCausalLM(t.GraniteConfig(**llama, logits_scaling=4.0)),
        "cohere": lambda: t.CohereForCausalLM(t.CohereConfig(**llama, logit_scale=0.25)),
        "neox": lambda: t.GPTNeoXForCausalLM(
            t.GPTNeoXConfig(
                hidden_size=32,
                intermediate_size=64,
                num_hidden_layers=2,
                num_attention_heads=4,
                **common,
            )
        ),
    }[name]().eval()


@pytest.mark.parametrize("name", ["llama", "tied", "gpt2", "gemma2", "granite", "cohere", "neox"])
def test_inner_products_are_those_of_exact_gradients(name: str) -> None:
    """With a rank above every width the projections only rotate: what is left is the sketch's error.

    A count-sketch to D buckets has standard error about |g||h| / sqrt(D) (Charikar et al. 2002),
    here 1 / 256; six times that is allowed.
    """
    exact = exact_gradients(family(name))
    signature, loss = GradientSigner(family(name), rank=160, dims=65536, seed=0)(make_batch())
    lengths = exact.norm(dim=1)
    expected = exact @ exact.T / (lengths[:, None] * lengths)
    got = signature @ signature.T / (lengths[:, None] * lengths)
    torch.testing.assert_close(got, expected, atol=6 / 256, rtol=0)
    model = family(name)
    expected_loss = torch.stack([reference_loss(model, row) for row in range(4)])
    torch.testing.assert_close(loss, expected_loss.detach(), atol=1e-5, rtol=1e-5)


def test_hidden_gradient_is_exactly_autograds() -> None:
    for name in ("llama", "gemma2", "granite", "cohere"):
        model, batch = family(name), make_batch()
        at = Positions.of(batch)
        hidden = last_hidden(model, batch)[at.row_S, at.token_S].detach().requires_grad_()
        loss = torch.nn.functional.cross_entropy(
            Head(model).logits(hidden), at.target_S, reduction="none"
        )
        (loss * at.share_S).sum().backward()
        _, gradient = Head(model).gradient(hidden.detach(), at, rows=4)
        torch.testing.assert_close(gradient, hidden.grad, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("kind", [GradientSigner, HeadSigner])
def test_companions_order_and_padding_do_not_change_a_signature(kind: Any) -> None:
    settings = {"rank": 16, "dims": 256, "seed": 3}
    signer = kind(tiny.model(), **settings)
    together, loss = signer(make_batch((3, 1, 0, 2), pad_to=40))
    for place, row in enumerate((3, 1, 0, 2)):
        single, single_loss = signer(alone(row))
        cosine = torch.nn.functional.cosine_similarity(single[0], together[place], dim=0)
        assert cosine > 0.99999
        torch.testing.assert_close(single_loss[0], loss[place])


def test_head_signature_is_the_projected_outer_product() -> None:
    model, batch = tiny.model(), make_batch()
    signer = HeadSigner(model, rank=8, dims=64, seed=0)
    signature, _ = signer(batch)
    at = Positions.of(batch)
    hidden = last_hidden(model, batch)[at.row_S, at.token_S].detach()
    _, gradient = Head(model).gradient(hidden, at, rows=4)
    weight = model.lm_head.weight
    projected = torch.linalg.lstsq(weight, signer.head_Vk).solution  # head_Vk = weight @ projection
    for row in range(4):
        mine = at.row_S == row
        product = (gradient[mine] @ projected).T @ (hidden[mine] @ signer.hidden_Ek)
        expected = torch.zeros(1, 64)
        signer.fold.add(expected, product.flatten()[None])
        torch.testing.assert_close(signature[row], expected[0], atol=1e-5, rtol=1e-3)


def test_same_seed_same_signature_other_seed_another() -> None:
    def sign(seed: int) -> torch.Tensor:
        return GradientSigner(tiny.model(), rank=8, dims=64, seed=seed)(make_batch())[0]

    assert torch.equal(sign(1), sign(1))
    assert not torch.allclose(sign(1), sign(2))


def test_layers_are_chosen_by_depth_or_pattern() -> None:
    model = tiny.model(layers=3)
    assert len(choose_layers(model, "all")) == 21
    assert choose_layers(model, "last:1") == [
        name for name in choose_layers(model, "all") if ".layers.2." in name
    ]
    assert choose_layers(model, "v_proj") == [
        f"model.layers.{depth}.self_attn.v_proj" for depth in range(3)
    ]
    with pytest.raises(
        SettingError, match=r"^--layers 'nope' matches no linear layer of the model$"
    ):
        choose_layers(model, "nope")
    with pytest.raises(SettingError, match=r"^--layers '\(' is no regular expression"):
        choose_layers(model, "(")


def test_a_layer_that_mixes_examples_is_named() -> None:
    model = tiny.model()
    layer = model.model.layers[0].mlp.down_proj

    class Flattened(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return layer(x.flatten(0, 1)).view(*x.shape[:2], -1)

    signer = GradientSigner(model, rank=8, dims=64, seed=0)
    model.model.layers[0].mlp.down_proj = Flattened()
    with pytest.raises(ModelError, match=r"layer model.layers.0.mlp.down_proj mixes the tokens"):
        signer(make_batch())


def test_coverage_names_what_cannot_be_seen() -> None:
    assert coverage(tiny.model()) == (1.0, [])
    assert coverage(family("gpt2")) == (1.0, [])
    import transformers as t

    mixture = t.MixtralForCausalLM(
        t.MixtralConfig(
            vocab_size=259,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=2,
            num_attention_heads=4,
            num_key_value_heads=2,
            num_local_experts=4,
            pad_token_id=0,
        )
    )
    share, hidden = coverage(mixture)
    experts = 2 * 4 * 3 * 32 * 64
    router = 2 * 4 * 32  # a bare matrix as well
    attention = 2 * (2 * 32 * 32 + 2 * 16 * 32)
    assert share == attention / (experts + router + attention)
    assert hidden == ["model.layers.*.mlp.experts", "model.layers.*.mlp.gate"]
