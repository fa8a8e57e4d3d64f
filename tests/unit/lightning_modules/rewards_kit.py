"""Rewards that learn while a random policy plays: CLIPO's, step values behind a trust gate, a critic in its ramp."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from contrastive_reasoning.advantages import GroupRelative, Process, TrustGate
from contrastive_reasoning.rewards import Credit, RampedCriticReward, StepCredit
from contrastive_reasoning.rewards.clipo import CLIPOReward, LinearHead
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Verdict
from tests.unit.lightning_modules.grpo_kit import Digits
from tests.unit.rewards import test_ramped_critic
from tests.unit.rewards.test_clipo import SETTINGS

OUTCOME = GroupRelative(normalise_std=True, epsilon=1e-6)


class Even:
    """Accepts completions of even length, so that a random policy has mixed groups."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        verdicts = [Verdict(status="ok" if len(text) % 2 == 0 else "wrong", reason="") for text in rollouts.texts]
        outcome = rollouts.old_log_probs.new_tensor([float(verdict.correct) for verdict in verdicts])
        return Credit(outcome=outcome, parts={"verifier": outcome}, verdicts=verdicts)


def clipo(**changes: Any) -> CLIPOReward:
    own: dict[str, Any] = {"outcome": Even(), "head": LinearHead(dimension=6, seed=0), "temperature": 0.2}
    return CLIPOReward(**SETTINGS | own | {"learning_rate": 1e-2, "max_skipped_steps": 0} | changes)


class StepReward:
    """The share of digits, and a step on the first half of every completion, valued at the sum of its token ids.

    ``auroc`` is the quality of these values that it reports in its metrics.
    """

    def __init__(self, auroc: float, warmup_steps: int) -> None:
        self.auroc, self.warmup_steps = auroc, warmup_steps

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        outcome = Digits()(rollouts).outcome
        halves = (rollouts.mask.sum(dim=1) // 2).tolist()
        values = (rollouts.completion_ids * rollouts.mask).sum(dim=1).double().tolist()
        steps = [[StepCredit(0, half, value, depth=3)] for half, value in zip(halves, values, strict=True)]
        parts = {"digits": outcome, "critic": outcome.new_tensor(values)}
        return Credit(outcome=outcome, parts=parts, steps=steps, metrics={"steps/auroc_siblings": self.auroc})

    def state_dict(self) -> dict[str, Any]:
        return {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        pass


def gated(auroc: float, warmup_steps: int = 0) -> dict[str, Any]:
    """Reward and advantage of a module."""
    process = Process(outcome=OUTCOME, weight=0.5, epsilon=1e-6)
    gate = TrustGate(advantage=process, window=2, floor=0.6, span=0.3, total_steps=6)
    return {"reward": StepReward(auroc, warmup_steps), "advantage": gate}


class OnSearches(RampedCriticReward):
    """Replaces each completion by a search that contains its length, because a random policy writes no searches."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        return super().__call__(replace(rollouts, texts=[search(len(text)) for text in rollouts.texts]))


def search(number: int) -> str:
    states = ([number, 7], [number + 7], [number])
    return "\n".join(f"{' ' * depth}|- Try ### Current State: {state}" for depth, state in enumerate(states))


def ramped() -> OnSearches:
    plain: Any = test_ramped_critic.ramped(draw=4, optimizer=test_ramped_critic.adam(1e-2), divisor=0.01)
    plain.__class__ = OnSearches
    return plain
