"""Weights and adapters of the real model: trained a step, saved, and loaded again by us and by transformers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import AutoModelForCausalLM

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from tests.real.conftest import QUESTIONS, loaded, weights

pytestmark = pytest.mark.real
MERGED = 1e-3
"""Tolerance of logits, which are some tens. In each of 210 float32 matrices, B A is added before or after the product
with the input."""


def test_save_and_load_keep_trained_weights_exactly(model: Path, policy: CausalLMPolicy, tmp_path: Path) -> None:
    trained = loaded(model)
    take_step(trained)
    trained.save(tmp_path)
    again = loaded(tmp_path)
    assert sorted(changed(policy, again)) == sorted(name for name, _ in policy.named_parameters())
    assert changed(trained, again) == []
    assert again.prompt_ids(QUESTIONS[0]) == policy.prompt_ids(QUESTIONS[0])
    assert again.eos_token_ids == policy.eos_token_ids
    theirs: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    assert theirs.dtype == torch.float32
    assert torch.equal(logits(theirs, policy), logits(trained.model, policy))


def test_adapters_are_attached_trained_and_merged_on_save(
    model: Path, policy: CausalLMPolicy, tmp_path: Path, record_property: pytest.RecordProperty
) -> None:
    lora = LoRA(rank=4, alpha=8.0, dropout=0.0, target_modules="all-linear")
    trained = loaded(model, lora)
    start, plain = weights(trained), logits(policy.model, policy)
    assert torch.equal(logits(trained.model, policy), plain), "B is zero at first"
    adapters = [name for name, parameter in trained.named_parameters() if parameter.requires_grad]
    assert len(adapters) == 30 * 7 * 2, "A and B of seven matrices in each of 30 layers"
    for _ in range(2):  # A has no gradient as long as B is zero
        take_step(trained)
    moved = [name for name, parameter in trained.named_parameters() if not torch.equal(parameter, start[name])]
    assert sorted(moved) == sorted(adapters)
    expected = logits(trained.model, policy)
    trained.save(tmp_path)
    assert torch.equal(logits(trained.model, policy), expected), "saving leaves the adapters apart"
    again = loaded(tmp_path)
    theirs: Any = AutoModelForCausalLM.from_pretrained(tmp_path)
    found = logits(again.model, policy)
    assert torch.equal(logits(theirs, policy), found)
    record_property("adapters moved logits by", (expected - plain).abs().max().item())
    record_property("folding them in moved logits by", (found - expected).abs().max().item())
    assert (expected - plain).abs().max() > 100 * MERGED
    assert (found - expected).abs().max() < MERGED
    continued = loaded(tmp_path, lora)
    assert torch.equal(logits(continued.model, policy), found), "new adapters go onto the folded ones"


def take_step(trained: CausalLMPolicy) -> None:
    """Takes a step towards an answer, by the gradient's sign, so that every weight changes."""
    completion = trained.encode_completions(["The opposite of hot is cold."])
    loss = -trained.log_probs(*trained.encode_prompts(QUESTIONS[:1]), *completion).mean()
    parameters = [parameter for parameter in trained.parameters() if parameter.requires_grad]
    with torch.no_grad():
        for parameter, gradient in zip(parameters, torch.autograd.grad(loss, parameters), strict=True):
            parameter.sub_(1e-3 * gradient.sign())


def changed(one: CausalLMPolicy, other: CausalLMPolicy) -> list[str]:
    """Returns the names of the parameters that differ in any bit."""
    there = dict(other.named_parameters())
    return [name for name, parameter in one.named_parameters() if not torch.equal(parameter, there[name])]


@torch.no_grad()
def logits(model: Any, policy: CausalLMPolicy) -> Tensor:
    """Returns the logits of a question by the model's own forward pass, without a batch or padding."""
    return copy.copy(model).eval()(torch.tensor([policy.prompt_ids(QUESTIONS[0])])).logits[0]
