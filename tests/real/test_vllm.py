"""The real model on a real vLLM:  VLLM_PYTHON=… python -m pytest -c pyproject.toml -m real tests/real/test_vllm.py"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.rollout import Engine
from contrastive_reasoning.rollout.vllm import AnswerReader, request_body
from contrastive_reasoning.rollout.vllm_client import JSONServer, ServerError
from contrastive_reasoning.tasks.base import Problem
from tests.contract.real_vllm import RealVLLM, real_vllm
from tests.contract.vllm_kit import GREEDY, SAMPLED, SEED, engine_of, scored
from tests.real.conftest import NAME, loaded

pytestmark = pytest.mark.real
QUESTIONS = [
    "What is the capital of France?",
    "Natalia sold 48 clips in April and half as many in May. How many is that?",
]
CLOSE = 1e-3
"""Tolerance between two float32 passes through 30 layers, by kernels of different libraries."""
OURS = Engine(max_batch_tokens=10_000)


@pytest.fixture(scope="module")
def problems() -> Sequence[Problem]:
    return [Problem(id=str(number), prompt=prompt, answer="") for number, prompt in enumerate(QUESTIONS)]


@pytest.fixture(scope="module")
def trained(model: Path, problems: Sequence[Problem]) -> CausalLMPolicy:
    """The policy with adapters, after two large steps away from its own completions."""
    adapted = loaded(model, LoRA(rank=4, alpha=8.0, dropout=0.0, target_modules="all-linear"))
    drawn = OURS.generate(adapted, problems, group_size=1, sampling=replace(SAMPLED, max_tokens=8), seed=SEED)
    optimizer = torch.optim.AdamW([part for part in adapted.parameters() if part.requires_grad], lr=3e-3)
    for _ in range(2):  # after the first step the adapters' B is no longer zero
        log_probs = adapted.log_probs(drawn.prompt_ids, drawn.prompt_mask, drawn.completion_ids, drawn.mask)
        log_probs.mean().backward()
        optimizer.step()
        optimizer.zero_grad()
    return adapted


@pytest.fixture(scope="module")
def server(trained: CausalLMPolicy, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealVLLM]:
    """A server that was started on the saved trained policy."""
    folder = tmp_path_factory.mktemp("served")
    trained.save(folder / f"{NAME}-trained")
    options = ["--logprobs-mode", "processed_logprobs", "--max-model-len", "512"]
    with real_vllm(folder / f"{NAME}-trained", folder / "log", *options) as started:
        yield started


def test_vllm_loads_saved_trained_policy(
    server: RealVLLM, policy: CausalLMPolicy, trained: CausalLMPolicy, problems: Sequence[Problem]
) -> None:
    """No weights are sent: the server has those that it loaded at its start."""
    prompt = trained.prompt_ids(problems[0].prompt)
    body = request_body(trained, prompt, group_size=2, limit=16, sampling=SAMPLED, seed=5)
    answer = JSONServer(url=server.url, timeout=600.0, retries=0).post("/v1/completions", body)
    for drawn in AnswerReader(trained, SAMPLED).read(answer, prompt=prompt, group_size=2, limit=16):
        by_server, by_trained, by_policy = (
            torch.tensor(drawn.log_probs),
            forward(trained, prompt, drawn.ids),
            forward(policy, prompt, drawn.ids),
        )
        assert (by_server - by_trained).abs().max() <= CLOSE
        assert (by_server - by_policy).abs().max() > 0.05


def forward(policy: CausalLMPolicy, prompt: list[int], completion: list[int]) -> torch.Tensor:
    """Returns log-probs of a completion by transformers' own forward pass."""
    model: Any = policy.model
    with torch.no_grad():
        logits = model(torch.tensor([prompt + completion])).logits[0, len(prompt) - 1 : -1]
    return logits.log_softmax(-1).gather(-1, torch.tensor(completion)[:, None])[:, 0]


@pytest.mark.parametrize("which", ["policy", "trained"])
def test_sent_weights_give_log_probs_of_our_forward_pass(
    which: str, server: RealVLLM, problems: Sequence[Problem], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    sent: CausalLMPolicy = request.getfixturevalue(which)
    warm = replace(SAMPLED, temperature=0.8)
    rollouts = engine_of(server.url, tmp_path).generate(sent, problems, group_size=2, sampling=warm, seed=SEED)
    assert (scored(sent, rollouts) - rollouts.old_log_probs).abs().max() <= CLOSE


def test_greedy_completions_match_our_engine_token_by_token(
    server: RealVLLM, policy: CausalLMPolicy, problems: Sequence[Problem], tmp_path: Path
) -> None:
    theirs, ours = (
        made.generate(policy, problems, group_size=1, sampling=GREEDY, seed=SEED)
        for made in (engine_of(server.url, tmp_path), OURS)
    )
    assert theirs.texts == ours.texts
    assert theirs.finish_reasons == ours.finish_reasons
    assert torch.equal(theirs.completion_ids, ours.completion_ids)
    assert "Paris" in theirs.texts[0]


def test_server_death_between_completions_raises_server_error(
    server: RealVLLM, policy: CausalLMPolicy, problems: Sequence[Problem], tmp_path: Path
) -> None:
    """This must be the last test of this file, because it kills the server."""
    engine = engine_of(server.url, tmp_path, concurrency=1)

    def kill(row: int, text: str) -> None:
        server.kill()

    with pytest.raises(ServerError, match=rf"{server.url}/\S+ cannot be reached \(tried once\)"):
        engine.generate(policy, problems, group_size=1, sampling=GREEDY, seed=SEED, written=kill)
