"""Rollouts by CUDA graphs on a GPU: the same as without, and really by graphs."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, Sampling
from contrastive_reasoning.tasks.base import Problem
from tests.tiny_models import loaded_policy

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
SAMPLED = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=96, stop=[])
PROBLEMS = [Problem(id=str(n), prompt=f"Numbers: {[n, n + 3, 7]}, target: {2 * n}\n", answer="") for n in range(9)]


@pytest.fixture(scope="module")
def policy() -> CausalLMPolicy:
    return loaded_policy("embedded:llama_countdown").cuda()


@pytest.mark.parametrize("pooled", [False, True], ids=["plain", "pooled"])
@pytest.mark.parametrize("sampling", [SAMPLED, replace(SAMPLED, temperature=0.0), replace(SAMPLED, top_k=5)])
@pytest.mark.parametrize("budget", [2_000, 100_000])
def test_rollouts_by_graphs_are_those_without(
    policy: CausalLMPolicy, budget: int, sampling: Sampling, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    replays = 0
    replay = torch.cuda.CUDAGraph.replay

    def counted(graph: torch.cuda.CUDAGraph) -> None:
        nonlocal replays
        replays += 1
        replay(graph)

    monkeypatch.setattr(torch.cuda.CUDAGraph, "replay", counted)
    plain, graphed = (
        Engine(max_batch_tokens=budget, cuda_graphs=graphs).generate(
            policy, PROBLEMS, group_size=8, sampling=sampling, seed=(1,), pooled=pooled
        )
        for graphs in (False, True)
    )
    assert replays > 10
    assert graphed.texts == plain.texts
    torch.testing.assert_close(graphed.old_log_probs, plain.old_log_probs, atol=1e-4, rtol=0)
    if pooled:
        torch.testing.assert_close(graphed.pooled, plain.pooled, atol=1e-3, rtol=1e-3)
