"""Fused layers: equal to the model's own in value and gradient, with less kept, and used only where they may be."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear, silu
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, GPT2Config

from contrastive_reasoning.policies import causal_lm, fused_layers
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, unwrap
from contrastive_reasoning.policies.fused_layers import FusedLayer, can_fuse
from contrastive_reasoning.policies.load import checkpoint_layers
from tests.tiny_models import loaded_policy, tiny_policy
from tests.unit.lightning_modules.grpo_kit import exact_norm
from tests.unit.policies.test_packed import CASES, TOKENIZERS, gradients, log_probs_and_pooled, one_by_one, wide_model

EVEN, UNEVEN = CASES["groups of two"], CASES["uneven, in several blocks"]
Change = Callable[[CausalLMPolicy], object]


def policy_of(kind: str, dtype: torch.dtype, **changes: Any) -> CausalLMPolicy:
    """A policy whose gains and biases are not those of a new model."""
    policy = tiny_policy(TOKENIZERS[kind], wide_model(kind, **changes), compute_dtype=dtype)
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if parameter.ndim == 1:
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.3)
                assert "norm" in name or "bias" in name
    return policy


def in_float64(kind: str) -> CausalLMPolicy:
    policy = policy_of(kind, torch.float32).double()
    for module in policy.modules():
        if type(module).__name__.endswith("RMSNorm"):
            module.forward = partial(exact_norm, module)
    return policy


@pytest.fixture(params=[True, False], ids=["packed", "padded"])
def packs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    monkeypatch.setattr(causal_lm, "packing_pays", lambda lengths, sizes: request.param)
    return request.param


@pytest.mark.parametrize("case", [EVEN, UNEVEN], ids=["even", "uneven"])
@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_equals_own_layers_in_value_and_gradient(
    kind: str, case: Any, packs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, given = in_float64(kind), case.tensors()
    expected, states = one_by_one(policy, given)
    wanted = gradients(policy, sum(e.sin().sum() for e in expected) + sum(s.mean(0).sin().sum() for s in states))
    made: list[FusedLayer] = []

    def fused(layer: Any, dtype: torch.dtype) -> FusedLayer:
        made.append(FusedLayer(layer, torch.float64))
        return made[-1]

    monkeypatch.setattr(causal_lm, "can_fuse", lambda model, dtype: True)
    monkeypatch.setattr(causal_lm, "FusedLayer", fused)
    log_probs, pooled = log_probs_and_pooled(policy, **given)
    assert len(made) == len(unwrap(policy.model).base_model.layers)
    for row, mask in enumerate(given["mask"]):
        assert_close(log_probs[row][mask], expected[row], rtol=1e-10, atol=1e-10)
        assert_close(pooled[row], states[row].mean(0), rtol=1e-10, atol=1e-10)
    got = gradients(policy, log_probs.sin().sum() + pooled.sin().sum())
    for name in wanted:
        assert_close(got[name], wanted[name], rtol=1e-9, atol=1e-10, msg=name)


def draw(*shape: int, seed: int) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()


def test_each_part_has_the_gradient_of_its_formula() -> None:
    states, gain = draw(5, 4, seed=1), draw(4, seed=2)
    first, second, row, other = draw(6, 4, seed=3), draw(2, 4, seed=4), draw(6, seed=5), draw(2, seed=6)

    def normed(states: Tensor, gain: Tensor, *parts: Tensor) -> Tensor:
        x = states * (states.square().mean(-1, keepdim=True) + 0.1).rsqrt() * gain
        biases = parts[2:] or (None, None)
        return torch.cat([linear(x, weight, bias) for weight, bias in zip(parts[:2], biases, strict=True)], dim=1)

    def ours(states: Tensor, gain: Tensor, *parts: Tensor) -> Any:
        return fused_layers._NormedProduct.apply(states, gain, 0.1, torch.float64, *parts)

    assert_same(ours, normed, (states, gain, first, second))
    assert_same(ours, normed, (states, gain, first, second, row, other))
    assert_same(fused_layers._Product.apply, linear, (states, first))
    assert_same(fused_layers._Product.apply, linear, (states, first, row))
    pair, down = draw(5, 8, seed=7), draw(3, 4, seed=8)
    assert_same(fused_layers._GatedProduct.apply, lambda x, w: linear(silu(x[:, :4]) * x[:, 4:], w), (pair, down))


def assert_same(ours: Callable[..., Any], formula: Callable[..., Tensor], given: tuple[Tensor, ...]) -> None:
    got, wanted = ours(*given), formula(*given)
    assert_close(got, wanted, rtol=1e-12, atol=1e-12)
    upstream = draw(*wanted.shape, seed=9).detach()
    for pair in zip(*(torch.autograd.grad(out, given, upstream) for out in (got, wanted)), strict=True):
        assert_close(*pair, rtol=1e-10, atol=1e-12)


def without_fusing(policy: CausalLMPolicy, run: Callable[[CausalLMPolicy], Any], patch: pytest.MonkeyPatch) -> Any:
    with patch.context() as own:
        own.setattr(causal_lm, "can_fuse", lambda model, dtype: False)
        return run(policy)


@pytest.mark.parametrize("kind", ["llama", "qwen2"])
def test_rounds_in_bfloat16_as_own_layers_do(kind: str, packs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = UNEVEN.tensors()

    def gap(policy: CausalLMPolicy) -> tuple[float, float]:
        """The distances of log-probs and of their gradient from those in fp32, the second as a share."""
        exact = policy_of(kind, torch.float32)
        values, wanted = (one.log_probs(**given) for one in (policy, exact))
        found, expected = gradients(policy, values.sin().sum()), gradients(exact, wanted.sin().sum())
        squares = [((found[name] - expected[name]).square().sum(), expected[name].square().sum()) for name in found]
        apart, size = (torch.stack(column).sum().sqrt() for column in zip(*squares, strict=True))
        return float((values - wanted).detach().abs().mean()), float(apart / size)

    policy = policy_of(kind, torch.bfloat16)
    ours, own = gap(policy), without_fusing(policy, gap, monkeypatch)
    assert 0 < ours[0] < 1.25 * own[0]
    assert 0 < ours[1] < 1.25 * own[1]


def test_scores_alike_with_and_without_gradient(packs: bool) -> None:
    policy, given = policy_of("llama", torch.bfloat16), UNEVEN.tensors()
    with torch.no_grad():
        scored = policy.log_probs(**given)
    assert torch.equal(policy.log_probs(**given).detach(), scored)


def kept_bytes(policy: CausalLMPolicy) -> int:
    """Bytes kept for backward that are not parameters."""
    own = {parameter.data_ptr() for parameter in policy.parameters()}
    kept: dict[int, Any] = {}

    def keep(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        kept[storage.data_ptr()] = storage
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = policy.log_probs(**UNEVEN.tensors()).sum()
    del loss
    return sum(storage.nbytes() for place, storage in kept.items() if place not in own)


def test_keeps_less_for_backward(packs: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = policy_of("llama", torch.bfloat16)
    assert kept_bytes(policy) < 0.75 * without_fusing(policy, kept_bytes, monkeypatch)


def half_weights(policy: CausalLMPolicy) -> None:
    policy.model.to(torch.bfloat16)


def other_activation(policy: CausalLMPolicy) -> None:
    policy.model.config.hidden_act = "gelu"


def hook(policy: CausalLMPolicy) -> None:
    policy.model.base_model.layers[1].mlp.register_forward_hook(lambda *_: None)  # pyright: ignore


def replaced_forward(policy: CausalLMPolicy) -> None:
    norm: Any = policy.model.base_model.layers[0].input_layernorm  # pyright: ignore
    norm.forward = partial(exact_norm, norm)


CHANGES: dict[str, Change] = {
    "a replaced forward": replaced_forward,
    "weights in half precision": half_weights,
    "checkpointing": lambda policy: checkpoint_layers(unwrap(policy.model)),
    "a hook": hook,
    "another activation": other_activation,
}


@pytest.mark.parametrize("change", CHANGES)
def test_other_layers_are_called_themselves(change: str) -> None:
    policy = policy_of("llama", torch.bfloat16)
    assert can_fuse(unwrap(policy.model), torch.bfloat16)
    CHANGES[change](policy)
    assert not can_fuse(unwrap(policy.model), torch.bfloat16)


def test_adapters_and_other_models_are_called_themselves() -> None:
    assert not can_fuse(unwrap(policy_of("llama", torch.bfloat16, lora=True).model), torch.bfloat16)
    assert not can_fuse(unwrap(policy_of("llama", torch.float32).model), torch.float32)
    other = AutoModelForCausalLM.from_config(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=16))
    assert not can_fuse(other, torch.bfloat16)


def test_fuses_after_a_pass_that_returned_all_hidden_states() -> None:
    policy = policy_of("llama", torch.bfloat16)
    policy.model(EVEN.tensors()["completion_ids"], output_hidden_states=True)
    assert policy.fuses


def test_hooks_of_layers_see_every_pass() -> None:
    policy, calls = policy_of("llama", torch.bfloat16), []
    policy.model.base_model.layers[0].register_forward_hook(lambda *_: calls.append(1))  # pyright: ignore
    policy.log_probs(**EVEN.tensors())
    assert calls == [1]


def test_setting_decides_where_layers_can_be_fused() -> None:
    tokenizer, model = TOKENIZERS["llama"], wide_model("llama")
    half: dict[str, Any] = {"compute_dtype": torch.bfloat16}
    assert tiny_policy(tokenizer, model, **half).fuses, "auto, on a CPU"
    assert tiny_policy(tokenizer, model, fused=True, **half).fuses
    assert not tiny_policy(tokenizer, model, fused=False, **half).fuses
    with pytest.raises(ValueError, match=r"policy\.fused=true needs .* compute_dtype torch\.float32"):
        tiny_policy(tokenizer, model, fused=True)
    with pytest.raises(ValueError, match=r"policy\.compiled=true and policy\.fused=true"):
        tiny_policy(tokenizer, model, fused=True, compiled=True, **half)
    with pytest.raises(ValueError, match=r"policy\.fused must be one of auto, true, false, got 'always'"):
        loaded_policy("embedded:llama_countdown", fused="always")
