"""The critic within a reward, however deep it stands, and how well its values foretell verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from contrastive_reasoning.critics.base import values_states
from contrastive_reasoning.critics.ensemble import members_of
from contrastive_reasoning.rewards.critic import CriticReward
from contrastive_reasoning.rewards.shaping import legal_steps
from contrastive_reasoning.rewards.step_metrics import FINISHED, Judged, step_metrics
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Task

INNER = ("outcome", "reward", "source")
"""Names under which a reward holds another; a sum holds several under ``rewards``."""


def critic_within(reward: Any) -> CriticReward:
    """The part of a reward whose critic can learn from states.

    Raises:
        ValueError: there is none, there are several, or the critic is an ensemble or reads more than states.
    """
    found = [part for part in _parts(reward) if isinstance(part, CriticReward)]
    if len(found) != 1:
        raise ValueError(f"an online critic is the one critic of the reward, which has {len(found)}: use reward=critic")
    if not values_states(found[0].critic):
        kind = type(found[0].critic).__name__
        raise ValueError(f"an online critic reads states, {kind} reads more: use critic=joint or critic=numeric_v2")
    if len(members_of(found[0].critic)) > 1:
        raise ValueError(
            "an online critic learns by one loss, and the members of an ensemble each by their own draws: use "
            "critic=joint or critic=numeric_v2"
        )
    return found[0]


def verdict_auroc(reward: CriticReward, task: Task, rollouts: RolloutBatch) -> float | None:
    """AUROC of the critic's values of states against the verdict on the completion that each stands in.

    Within problem and depth, as ``steps/auroc_siblings``: what a per-step advantage compares. A state of one number is
    left out: there the value is the verdict. Of the rollouts of all ranks, which all must ask.

    Returns:
        A number in [0, 1]; None where no problem has states of one depth in completions of either verdict.
    """
    valued = reward.step_values(rollouts, legal_steps(task, rollouts))
    judged = [
        [Judged(value, len(step.state), finished=len(step.state) == FINISHED) for step, value in row] for row in valued
    ]
    seen = step_metrics(judged, [[]] * len(judged), verdicts_of(task, rollouts), rollouts.group_size)
    return seen.get("steps/auroc_siblings")


def _parts(reward: Any) -> Iterator[Any]:
    """A reward and those it is made of."""
    yield reward
    inner = [getattr(reward, name, None) for name in INNER]
    for part in (*inner, *getattr(reward, "rewards", {}).values()):
        if part is not None:
            yield from _parts(part)
