"""The critic within a reward, however deep it stands, and how well its values foretell verdicts."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate
from typing import Any

import torch

from contrastive_reasoning.critics.base import values_states
from contrastive_reasoning.critics.ensemble import members_of
from contrastive_reasoning.ranks import gather
from contrastive_reasoning.rewards.critic import CriticReward
from contrastive_reasoning.rewards.shaping import legal_steps
from contrastive_reasoning.rewards.step_metrics import auroc
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.verdicts import verdicts_of
from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown.encoding import WIDTH

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
    verdicts = verdicts_of(task, rollouts)
    steps = [
        [step for step in those if len(step.state) > 1 and verdict.judged]
        for those, verdict in zip(legal_steps(task, rollouts), verdicts, strict=True)
    ]
    own = [
        (verdict.correct, row // rollouts.group_size * (WIDTH + 1) + len(step.state))
        for row, (those, verdict) in enumerate(zip(steps, verdicts, strict=True))
        for step in those
    ]
    valued = [value for those in reward.step_values(rollouts, steps) for _, value in those]
    of_ranks = gather((valued, own, len(rollouts.problems) * (WIDTH + 1)))
    begin = [0, *accumulate(width for _, _, width in of_ranks)]
    values = [value for found, _, _ in of_ranks for value in found]
    right = [correct for _, rows, _ in of_ranks for correct, _ in rows]
    siblings = [first + place for first, (_, rows, _) in zip(begin, of_ranks, strict=False) for _, place in rows]
    return auroc(
        torch.tensor(values, dtype=torch.float64),
        torch.tensor(right, dtype=torch.bool),
        torch.tensor(siblings, dtype=torch.long),
    )


def _parts(reward: Any) -> Iterator[Any]:
    """A reward and those it is made of."""
    yield reward
    inner = [getattr(reward, name, None) for name in INNER]
    for part in (*inner, *getattr(reward, "rewards", {}).values()):
        if part is not None:
            yield from _parts(part)
