"""Adds the share of vowels of a completion to the verifier's reward."""

from __future__ import annotations

from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Task

VOWELS = frozenset("aeiou")


class VowelReward:
    """r = [correct] + weight · vowels / characters; an empty completion has no vowels."""

    verifies = True

    def __init__(self, *, task: Task, weight: float) -> None:
        self.task = task
        self.weight = weight

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        verdicts = verdicts_of(self.task, rollouts)
        like = rollouts.old_log_probs
        correct = like.new_tensor([float(verdict.correct) for verdict in verdicts])
        shares = like.new_tensor([vowel_share(completion) for completion in rollouts.texts])
        return Credit(
            outcome=correct + self.weight * shares,
            parts={"verifier": correct, "vowels": shares},
            verdicts=verdicts,
        )


def vowel_share(text: str) -> float:
    return sum(letter in VOWELS for letter in text) / max(len(text), 1)
