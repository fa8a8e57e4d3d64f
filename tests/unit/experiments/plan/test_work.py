"""The plan's operations of a step against torch's count while a small policy samples and trains."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from omegaconf import OmegaConf
from torch.utils.flop_counter import FlopCounterMode
from transformers import LlamaConfig
from transformers.models.llama import LlamaForCausalLM

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.shape import ModelShape
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.rollout.engine import Engine
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.tasks.base import Problem
from experiments.plan.page import StepWork, work_of_step
from experiments.plan.stages import Experiment
from tests.tiny_models import tiny_policy
from tests.unit.experiments.plan.learners import rollouts_of, whole_on_cpu

GROUP, PROBLEMS, COMPLETION = 4, 2, 40
WITHIN = 0.05


@pytest.fixture(scope="module")
def policy() -> CausalLMPolicy:
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=400,
        hidden_size=128,
        intermediate_size=352,
        num_hidden_layers=3,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=256,
        tie_word_embeddings=True,
        eos_token_id=None,
    )
    return tiny_policy(train_tokenizer(["1 2 3"], vocab_size=270), LlamaForCausalLM(config))


def planned(policy: CausalLMPolicy, prompt: int, **others: bool | int) -> StepWork:
    learner = whole_on_cpu(ModelShape.of(policy.model.config.to_dict()))
    budget = {"updates": others.get("updates", 1), "minibatches": others.get("minibatches", 1)}
    return work_of_step(
        Experiment(
            config=OmegaConf.create({"budget": {"grpo": budget}}),
            learner=learner,
            source="",
            rollouts=rollouts_of(PROBLEMS, GROUP, prompt, COMPLETION),
            reference=replace(learner, frozen=True) if others.get("reference") else None,
            full_kl=bool(others.get("full_kl")),
        )
    )


def test_planned_update_operations_equal_torch_count(policy: CausalLMPolicy) -> None:
    """They are exactly equal without attention, whose kernel torch does not count on a CPU."""
    rows, prompt = PROBLEMS * GROUP, 24
    prompts = torch.randint(3, 270, (PROBLEMS, prompt))
    ids = torch.randint(3, 270, (rows, COMPLETION))
    owner = torch.arange(rows) // GROUP
    with FlopCounterMode(display=False) as counter:
        found = policy.log_probs(
            prompts, torch.ones_like(prompts).bool(), ids, torch.ones_like(ids).bool(), owner=owner
        )
        found.sum().backward()
    of_prompts = PROBLEMS * sum(range(1, prompt + 1))
    pairs = of_prompts + rows * sum(range(prompt + 1, prompt + COMPLETION + 1))
    attention = 12 * 3 * 128 * pairs
    recomputed = (
        2 * policy.head[0].numel() * ids.numel()
    )  # logits are recomputed in the backward pass; the plan does not count that
    assert planned(policy, prompt).update - attention + recomputed == counter.get_total_flops()


def test_planned_rollout_operations_match_torch_count(policy: CausalLMPolicy) -> None:
    problems = [Problem(id=str(i), prompt="1" * 24, answer="", fields={}) for i in range(PROBLEMS)]
    sampling = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=COMPLETION, stop=())
    with FlopCounterMode(display=False) as counter:
        drawn = Engine(max_batch_tokens=10_000).generate(
            policy, problems, group_size=GROUP, sampling=sampling, seed=(0,)
        )
    assert int(drawn.mask.sum()) >= 0.9 * PROBLEMS * GROUP * COMPLETION
    expected = planned(policy, int(drawn.prompt_mask.sum(1).max())).rollout
    share = int(drawn.mask.sum()) / (PROBLEMS * GROUP * COMPLETION)
    assert expected * share == pytest.approx(counter.get_total_flops(), rel=WITHIN)


def test_scoring_work_is_proportional_to_rollout_work(policy: CausalLMPolicy) -> None:
    plain = planned(policy, 24)
    assert plain.scoring == 0
    assert planned(policy, 24, reference=True).scoring == plain.rollout
    assert planned(policy, 24, minibatches=4).scoring == plain.rollout * 3 // 4
    assert planned(policy, 24, reference=True, full_kl=True, updates=3).scoring == 3 * plain.rollout
    assert planned(policy, 24, updates=3).update == 3 * plain.update
