"""Compiled passes compared with uncompiled ones: values, gradients, names, saved copies, and later lengths."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from jaxtyping import config
from torch import Tensor
from torch.testing import assert_close
from transformers import AutoModelForCausalLM, GPT2Config, PreTrainedTokenizerFast

from contrastive_reasoning.policies import causal_lm, packed
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import checkpoint_layers
from tests.tiny_models import tiny_policy
from tests.unit.policies.test_packed import TOKENIZERS, Rows, log_probs_and_pooled, wide_model


def build(kind: str = "llama", *, lora: bool = False, compiled: bool = True) -> CausalLMPolicy:
    return tiny_policy(TOKENIZERS[kind], wide_model(kind, lora=lora), compiled=compiled)


FIRST = Rows([5, 9], [4, 7, 3], [0, 0, 1]).tensors()
LATER = Rows([17, 3, 6], [1, 9, 30, 2, 14], [0, 0, 0, 1, 2]).tensors()


def values_and_gradients(policy: CausalLMPolicy, given: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    log_probs, pooled = log_probs_and_pooled(policy, **given)
    trained = {name: p for name, p in policy.named_parameters() if p.requires_grad}
    loss = log_probs.sin().sum() + pooled.sin().sum()
    return log_probs.detach(), dict(zip(trained, torch.autograd.grad(loss, list(trained.values())), strict=True))


def assert_same_gradient(policy: CausalLMPolicy, plain: CausalLMPolicy, given: dict[str, Tensor]) -> None:
    got, expected = values_and_gradients(policy, given), values_and_gradients(plain, given)
    assert_close(got[0], expected[0], atol=1e-5, rtol=0)
    assert got[1].keys() == expected[1].keys()
    for name, gradient in expected[1].items():
        assert (got[1][name] - gradient).norm() <= 1e-5 * gradient.norm(), name


def assert_same(policy: CausalLMPolicy, plain: CausalLMPolicy, given: dict[str, Tensor]) -> None:
    """Compares with gradient, and also without, as an old policy is scored."""
    assert_same_gradient(policy, plain, given)
    with torch.no_grad():
        assert_close(policy.log_probs(**given), plain.log_probs(**given), atol=1e-5, rtol=0)


def pack(monkeypatch: pytest.MonkeyPatch, packs: bool) -> None:
    monkeypatch.setattr(causal_lm, "packing_pays", lambda lengths, sizes: packs)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Resets compiled code between tests. Disables shape checks, because the check itself would be compiled."""
    torch.compiler.reset()
    config.update("jaxtyping_disable", True)
    yield
    config.update("jaxtyping_disable", False)
    torch.compiler.reset()


@pytest.mark.slow
def test_scoring_pass_compiles_once_and_generation_never(monkeypatch: pytest.MonkeyPatch) -> None:
    pack(monkeypatch, False)
    policy, plain = build(), build(compiled=False)
    with torch.compiler.set_stance("fail_on_recompile"), pytest.raises(RuntimeError, match="fail_on_recompile"):
        policy.log_probs(**FIRST)
    assert_same_gradient(policy, plain, FIRST)
    with torch.compiler.set_stance("fail_on_recompile"):
        assert_same_gradient(policy, plain, LATER)
        policy.model(FIRST["prompt_ids"])


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "lora"), [("llama", True), ("qwen2", False)], ids=["llama-lora", "qwen2-whole"])
def test_compiled_pass_equals_uncompiled_pass(kind: str, lora: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    policy, plain = build(kind, lora=lora), build(kind, lora=lora, compiled=False)
    for packs in (False, True):
        pack(monkeypatch, packs)
        assert_same(policy, plain, FIRST)
        with torch.compiler.set_stance("fail_on_recompile"):
            assert_same(policy, plain, LATER)


@pytest.mark.slow
def test_compiled_checkpointed_layers_have_equal_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    policy, plain = build(), build(compiled=False)
    checkpoint_layers(policy.model)  # pyright: ignore[reportArgumentType]
    for packs in (False, True):
        pack(monkeypatch, packs)
        assert_same(policy, plain, FIRST)


@pytest.mark.slow
def test_compiled_policy_saves_uncompiled_parameter_names(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pack(monkeypatch, False)
    policy, plain = build(lora=True), build(lora=True, compiled=False)
    values_and_gradients(policy, FIRST)
    assert policy.state_dict().keys() == plain.state_dict().keys()
    torch.save(policy.state_dict(), tmp_path / "state.pt")
    plain.load_state_dict(torch.load(tmp_path / "state.pt"))
    policy.save(tmp_path)
    merged = tiny_policy(policy.tokenizer, AutoModelForCausalLM.from_pretrained(tmp_path))
    assert_close(merged.log_probs(**FIRST), plain.log_probs(**FIRST), atol=1e-5, rtol=0)


class RaisingPlan:
    """A plan that raises."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float) -> Tensor:
        raise KeyError("stops")


def test_failed_pass_restores_model_layers(monkeypatch: pytest.MonkeyPatch) -> None:
    pack(monkeypatch, True)
    monkeypatch.setattr(packed, "SharedPrompts", lambda blocks: RaisingPlan())
    policy = build()
    layers = policy.model.base_model.layers
    with torch.compiler.set_stance("force_eager"), pytest.raises(KeyError, match="stops"):
        policy.log_probs(**FIRST)
    assert policy.model.base_model.layers is layers


def test_compiled_without_cpp_compiler_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(ValueError, match=r"policy\.compiled.*no-such-compiler"):
        build()
    assert not build(compiled=False).compiled


def test_compiled_model_without_layers_raises() -> None:
    tokenizer: PreTrainedTokenizerFast = TOKENIZERS["llama"]
    model = AutoModelForCausalLM.from_config(GPT2Config(n_layer=1, n_embd=8, n_head=1, vocab_size=len(tokenizer)))
    with pytest.raises(ValueError, match=r"policy\.compiled.*GPT2Model"):
        tiny_policy(tokenizer, model, compiled=True)
