"""Workloads have the documented sizes: tokens of prompts, lengths, and the probability of the end token."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.workloads import (
    END_SHARE,
    MODELS,
    PRETRAINED,
    SEED,
    SHORTEST,
    SMALL,
    WORKLOADS,
    WorkFiles,
    Workload,
)
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import load_policy
from contrastive_reasoning.rollout import Engine, Sampling

BY_KEY = {workload.key: workload for workload in WORKLOADS}
UNEVEN = BY_KEY["uneven"]


def prompt_tokens(workload: Workload, folder: Path) -> int:
    return WorkFiles(replace(workload, prompts=1, uneven=False), folder).prompt_tokens


@pytest.mark.parametrize(("key", "least", "most"), [("long", 1700, 1900), ("uneven", 25, 35)])
def test_prompts_have_expected_number_of_tokens(key: str, least: int, most: int, tmp_path: Path) -> None:
    assert least <= prompt_tokens(BY_KEY[key], tmp_path) <= most


def test_problems_are_deterministic_and_fill_whole_microbatches() -> None:
    for workload in WORKLOADS:
        assert workload.problems() == workload.problems()
        assert len({problem.prompt for problem in workload.problems()}) == workload.prompts
        assert workload.prompts * workload.group_size % workload.microbatch_rows == 0


def test_only_pretrained_model_suits_word_problems() -> None:
    done = {model: [workload.key for workload in WORKLOADS if workload.suits(model)] for model in MODELS}
    assert done.pop(PRETRAINED) == ["problems"]
    assert set(map(tuple, done.values())) == {("short", "long", "uneven")}


@pytest.mark.parametrize(
    ("model", "uneven"),
    [(SMALL, False), (SMALL, True), pytest.param("qwen2_05b", True, marks=pytest.mark.whole)],  # the last in a minute
)
def test_end_token_has_configured_probability(model: str, uneven: bool, tmp_path: Path) -> None:
    """The tokens before it in the vocabulary are never drawn, so the lowest random numbers select it."""
    workload = replace(UNEVEN, prompts=1, uneven=uneven, model=model)
    policy = policy_of(WorkFiles(workload, tmp_path).folder)
    ids = torch.randint(3, 300, (4, 64), generator=torch.Generator().manual_seed(1))
    with torch.no_grad(), policy.autocast():
        shares = policy.model(input_ids=ids).logits.float().softmax(-1)
    assert policy.eos_token_ids == (2,)
    assert float(shares[..., :2].max()) < 1e-9
    assert float(shares[..., len(policy.tokenizer) :].sum(-1).max()) < 1e-9
    if uneven:
        assert END_SHARE / 2 < float(shares[..., 2].min()) <= float(shares[..., 2].max()) < 2 * END_SHARE
    else:
        assert float(shares[..., 2].max()) < 1e-9


def test_engine_ends_uneven_rows_late_at_different_lengths(tmp_path: Path) -> None:
    files = WorkFiles(replace(UNEVEN, prompts=2), tmp_path)
    sampling = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=96, stop=())
    rollouts = Engine(max_batch_tokens=100_000).generate(
        policy_of(files.folder), files.problems, group_size=UNEVEN.group_size, sampling=sampling, seed=SEED
    )
    lengths = rollouts.mask.sum(dim=1).tolist()
    assert min(lengths) >= SHORTEST
    assert len(set(lengths)) > 2


def policy_of(folder: Path) -> CausalLMPolicy:
    return load_policy(
        pretrained=str(folder / "policy"),
        architecture=None,
        weights_dtype="float32",
        compute_dtype="bfloat16",
        lora=None,
        chat_template=False,
        trust_remote_code=False,
        gradient_checkpointing=False,
        compiled=False,
        kernels="torch",
        seed=0,
    )
