"""Trains the real model's first layers in one process and in shards on two ranks, all weights or adapters."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout import Engine, RolloutBatch
from tests.real.conftest import loaded
from tests.unit.lightning_modules import grpo_kit
from tests.unit.lightning_modules.ranks_kit import trained as train

STEPS = 2
LEARNING_RATE = 1e-4
KINDS = {"all weights": None, "adapters": LoRA(rank=4, alpha=8.0, dropout=0.0, target_modules="all-linear")}
"""Name → adapter of what is trained."""
STAGES = ("zero2", "zero3")


class Vowels:
    """A reward that text without sense can get: the share of vowels in the completion."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        shares = [sum(c in "aeiou" for c in text) / max(len(text), 1) for text in rollouts.texts]
        outcome = rollouts.old_log_probs.new_tensor(shares)
        return Credit(outcome=outcome, parts={"vowels": outcome})


def trained(name: str, kind: str, few_layers: Path) -> dict[str, Any]:
    """Trains on two rollout batches of four groups, each in two mini-batches of several micro-batches."""
    module = grpo_kit.module(
        policy=loaded(few_layers, KINDS[kind]),
        reward=Vowels(),
        optimizer=grpo_kit.optimizer(LEARNING_RATE),
        minibatches_per_rollout=2,
        microbatch_tokens=50,  # two completions behind their prompt
    )
    passes, loss = [], module.loss
    module.loss = lambda *args: (passes.append(1), loss(*args))[1]
    drawn, greedy = (grpo_kit.sampling(temperature, max_tokens=8, stop="e") for temperature in (1.0, 0.0))
    draws = grpo_kit.generation(engine=Engine(max_batch_tokens=10_000), sampling=drawn, greedy=greedy)
    found = train(name, module, grpo_kit.prompts(4, STEPS), draws, steps=STEPS, limit_val_batches=0)
    return {"weights": found["weights"], "moved": found["moved"], "steps": found["steps"], "passes": len(passes)}


def compared(few_layers: Path, expected: Path) -> dict[str, dict[str, Any]]:
    """Compares this rank's results at both stages with those of one process, saved as ``expected/KIND.pt``."""
    found = {}
    for kind in KINDS:
        one = torch.load(expected / f"{kind}.pt", weights_only=True)
        for stage in STAGES:
            ours = trained(stage, kind, few_layers)
            found[f"{stage} {kind}"] = {
                "apart": (ours["moved"] - one["moved"]).norm().item() / one["moved"].norm().item(),
                "farthest": (ours["weights"] - one["weights"]).abs().max().item(),
                "sha256": sha256(ours["weights"].numpy()).hexdigest(),
                "steps": ours["steps"],
                "passes": ours["passes"],
            }
    return found
