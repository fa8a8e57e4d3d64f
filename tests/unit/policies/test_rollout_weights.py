"""A policy's copy for rollouts: equal products in the compute dtype, and no shared memory."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

from contrastive_reasoning.policies import rollout_weights
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.policies.rollout_weights import copy_of_shards, whole_for_rollouts
from contrastive_reasoning.policies.shape import ModelShape
from contrastive_reasoning.rollout import Engine, Sampling
from experiments.plan.stages import weight_copies
from tests.unit.experiments.plan.learners import whole_on_cpu
from tests.unit.lightning_modules import grpo_kit
from tests.unit.lightning_modules.ranks_kit import untied

SAMPLING = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=10, stop=[])
PROBLEMS = grpo_kit.TASK.problems("train")[:3]
F, B = torch.float32, torch.bfloat16


def policy(tied: bool, weights: torch.dtype, compute: torch.dtype, rank: int | None) -> CausalLMPolicy:
    model: Any = (grpo_kit.policy() if tied else untied(seed=1)).model.to(weights)
    if rank is not None:
        lora = LoRA(rank=rank, alpha=4.0, dropout=0.0, target_modules="all-linear")
        model = lora.attach(model, seed=0)
        for name, parameter in model.named_parameters():
            if "lora_B" in name:  # zero initially, which equals no adapter
                nn.init.normal_(parameter, std=0.1, generator=torch.Generator().manual_seed(0))
    return grpo_kit.as_policy(model, compute)


@pytest.fixture(autouse=True)
def on_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")  # DeepSpeed reads it when it is imported


KINDS = [
    *((True, weights, compute, None) for weights, compute in ((F, F), (F, B), (B, B), (B, F))),
    (False, F, B, None),
    *((True, weights, B, 2) for weights in (F, B)),
]


@pytest.mark.parametrize(("tied", "weights", "compute", "rank"), KINDS)
def test_copy_of_shards_draws_equal_rollouts_and_has_planned_size(
    tied: bool, weights: torch.dtype, compute: torch.dtype, rank: int | None
) -> None:
    own = policy(tied, weights, compute, rank)
    copy = copy_of_shards(own)
    expected, found = (
        Engine(max_batch_tokens=1000).generate(one, PROBLEMS, group_size=4, sampling=SAMPLING, seed=(0,), pooled=True)
        for one in (own, copy)
    )
    for name in ("completion_ids", "mask", "old_log_probs", "pooled"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    assert copy.eos_token_ids == own.eos_token_ids
    assert not any(parameter.requires_grad for parameter in copy.parameters())
    layers = [part for part in copy.modules() if isinstance(part, nn.Linear)]
    assert len(layers) > 10
    if compute != F:
        assert {layer.weight.dtype for layer in layers} == {compute}
    shape = ModelShape.of(own.model.config.to_dict())
    learner = replace(
        whole_on_cpu(shape),
        weight_bytes=weights.itemsize,
        compute_bytes=compute.itemsize,
        adapters=shape.adapter_parameters(rank, "all-linear") if rank else 0,
    )
    size = sum(parameter.nbytes for parameter in copy.parameters())
    assert weight_copies(learner, sharded=True) == pytest.approx(size, rel=0.02), "norms and biases are not counted"


@pytest.mark.parametrize("system", ["none", "default"])
def test_copy_of_shards_keeps_settings_and_does_not_change_with_policy(system: str) -> None:
    own = policy(True, F, B, None)
    own.system, own.chunk = system, 7
    copy = copy_of_shards(own)
    kept = ("tokenizer", "compute_dtype", "chat_template", "system", "chunk", "score")
    assert {name: getattr(copy, name) for name in kept} == {name: getattr(own, name) for name in kept}
    before = [parameter.clone() for parameter in copy.parameters()]
    with torch.no_grad():
        for parameter in own.parameters():
            parameter.add_(1.0)
    assert all(torch.equal(kept, parameter) for kept, parameter in zip(before, copy.parameters(), strict=True))


def test_whole_for_rollouts_yields_unsharded_policy_itself_and_frees_copy_on_exit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Memory is freed at once, even while references remain, because the update needs it."""
    own = policy(True, F, F, None)
    for copied in (True, False):
        with whole_for_rollouts(own, copied=copied) as source:
            assert source is own
    monkeypatch.setattr(rollout_weights, "is_sharded", lambda policy: True)
    with whole_for_rollouts(own, copied=True) as copy:
        assert sum(parameter.nbytes for parameter in copy.parameters()) > 10_000
    assert sum(parameter.nbytes for parameter in copy.parameters()) == 0
    assert sum(parameter.nbytes for parameter in own.parameters()) > 10_000
