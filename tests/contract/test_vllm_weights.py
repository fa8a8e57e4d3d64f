"""The policy's weights reach a vLLM server whole and in time, or nothing is drawn."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.rollout.vllm import VLLMEngine
from contrastive_reasoning.rollout.vllm_client import ServerError
from contrastive_reasoning.tasks.base import Problem
from tests.contract.vllm_kit import SAMPLED, SEED, scored

if TYPE_CHECKING:
    from tests.contract.conftest import FakeVLLM

Draw = Callable[..., RolloutBatch]


def test_weights_travel_when_they_changed_and_only_then(
    draw: Draw, fake: FakeVLLM, policy: CausalLMPolicy, tmp_path: Path
) -> None:
    first, again = draw(1), draw(1)
    assert torch.equal(first.old_log_probs, again.old_log_probs)
    assert fake.paths().count("load_policy") == 1
    next(policy.model.parameters()).data[5] *= 3.0  # moves no counter of changes
    changed = draw(1)
    assert fake.paths().count("load_policy") == fake.paths().count("/reset_prefix_cache") == 2
    assert (scored(policy, changed) - changed.old_log_probs).abs().max() <= 1e-5
    assert (scored(policy, first) - first.old_log_probs).abs().max() > 1e-2
    assert list((tmp_path / "weights").iterdir()) == [], "nothing is left of a transfer"


def test_a_policy_with_adapters_arrives_merged(
    engine: VLLMEngine, policy: CausalLMPolicy, problems: Sequence[Problem]
) -> None:
    lora = LoRA(rank=2, alpha=4.0, dropout=0.0, target_modules="all-linear")
    adapted = CausalLMPolicy(
        model=lora.attach(policy.model, seed=0),  # pyright: ignore[reportArgumentType]
        tokenizer=policy.tokenizer,
        compute_dtype=torch.float32,
        chat_template=False,
    )
    with torch.no_grad():
        for name, parameter in adapted.named_parameters():
            if "lora_" in name:
                parameter.add_(0.1)
    rollouts = engine.generate(adapted, problems, group_size=2, sampling=SAMPLED, seed=SEED)
    assert (scored(adapted, rollouts) - rollouts.old_log_probs).abs().max() <= 1e-5


def test_a_server_that_was_started_again_is_refused(draw: Draw, fake: FakeVLLM) -> None:
    draw()
    fake.worker.policy_fingerprint = None
    with pytest.raises(ServerError, match=r"holds other weights \(None\) than it was given \([0-9a-f]{32}\)"):
        draw()


def test_a_server_that_another_run_uses_is_refused_though_the_draw_had_begun(draw: Draw, fake: FakeVLLM) -> None:
    def meddle(answer: dict[str, Any]) -> dict[str, Any]:
        fake.worker.policy_fingerprint = "0" * 32
        return answer

    fake.tamper = meddle
    with pytest.raises(ServerError, match="another run uses it"):
        draw()


def test_a_server_that_loads_something_else_is_refused(
    draw: Draw, fake: FakeVLLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    stale = {"fingerprint": "1" * 32, "logprobs_mode": "raw_logprobs"}
    monkeypatch.setattr(fake.worker, "load_policy", lambda folder: stale, raising=True)
    with pytest.raises(ServerError, match="loaded other weights"):
        draw()
    assert "/v1/completions" not in fake.paths()
