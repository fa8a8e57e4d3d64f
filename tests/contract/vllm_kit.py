"""Settings and helpers that the tests of VLLMEngine share."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import RolloutBatch, Sampling
from contrastive_reasoning.rollout.vllm import VLLMEngine

SAMPLED = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=24, stop=[])
GREEDY = replace(SAMPLED, temperature=0.0)
SEED = (3, "rollout", 7, 0)


def engine_of(url: str, folder: Path, **changed: Any) -> VLLMEngine:
    settings: dict[str, Any] = {
        "url": url,
        "weights_folder": str(folder / "weights"),
        "disk_folder": str(folder / "disk"),
        "sleep_level": None,
        "concurrency": 3,
        "timeout": 600.0,
        "retries": 0,
        "max_batch_tokens": 200,
    }
    return VLLMEngine(**{**settings, **changed})


def scored(policy: CausalLMPolicy, rollouts: RolloutBatch) -> torch.Tensor:
    ids, mask = (part.repeat_interleave(rollouts.group_size, 0) for part in (rollouts.prompt_ids, rollouts.prompt_mask))
    with torch.no_grad():
        return policy.log_probs(ids, mask, rollouts.completion_ids, rollouts.mask, temperature=rollouts.temperature)
