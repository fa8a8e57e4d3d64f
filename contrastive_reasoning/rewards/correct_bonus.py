"""Bonuses that differ among the correct completions of a group, with a chosen spread: an oracle and a control of CLIPO.

        b′ᵢ = spread · (bᵢ − mean) / σ          over the correct i of a group with 1 < |P| < G; 0 for all others

mean and σ (the root mean square deviation) are those of the group's correct completions. If these are equal, b′ is 0. A
common shift cancels in a normalized advantage, so the spread is what a bonus changes among correct completions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.distributed import gather
from contrastive_reasoning.ranges import above
from contrastive_reasoning.rewards.base import Credit, Reward, refuse_learning
from contrastive_reasoning.rewards.controls import fixed_draw
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Verdict


@runtime_checkable
class Score(Protocol):
    """Computes the bonus of every completion before it is scaled; larger is better."""

    def __call__(self, rollouts: RolloutBatch, verdicts: Sequence[Verdict]) -> Sequence[float]: ...


@dataclass(frozen=True, kw_only=True)
class VerdictField:
    """A field of the verdict, such as ``right_plan`` of the arithmetic stories: 1 where it is true.

    Raises ValueError when called if the verdict of a correct completion lacks the field.
    """

    field: str

    def __call__(self, rollouts: RolloutBatch, verdicts: Sequence[Verdict]) -> Sequence[float]:
        lacking = next((one for one in verdicts if one.correct and self.field not in one.fields), None)
        if lacking is not None:
            known = ", ".join(lacking.fields) or "none"
            raise ValueError(f"reward.score.field={self.field}: the verdict has no such field; there are {known}")
        return [float(bool(verdict.fields.get(self.field))) for verdict in verdicts]


@dataclass(frozen=True, kw_only=True)
class RandomScore:
    """Numbers uniform in [0, 1), drawn anew for each group of completions: a function of the seed and their texts."""

    seed: int

    def __call__(self, rollouts: RolloutBatch, verdicts: Sequence[Verdict]) -> Sequence[float]:
        size, found = rollouts.group_size, []
        for first in range(0, len(rollouts), size):
            texts = [str(text) for text in rollouts.texts[first : first + size]]
            found += [fixed_draw("random_bonus", self.seed, texts, place) for place in range(size)]
        return found


@dataclass(kw_only=True, eq=False)
class CorrectBonus:
    """``outcome`` plus a bonus of the correct completions, centred and scaled within each group to ``spread``.

    Raises ValueError for a spread that is not positive, and when called if ``outcome`` does not verify.
    """

    outcome: Reward
    """The reward that is shaped; it must verify."""
    score: Score
    """Ranks the correct completions of a group."""
    spread: float
    """σ of the bonus among the correct completions of a group."""

    def __post_init__(self) -> None:
        above(0, spread=self.spread)
        refuse_learning("CorrectBonus", self.outcome)

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit = self.outcome(rollouts)
        if credit.verdicts is None:
            raise ValueError(f"reward.outcome must verify completions; this one has {credit.named} only")
        judged = torch.tensor([row not in credit.failures for row in range(len(rollouts))])
        correct = torch.tensor([verdict.correct for verdict in credit.verdicts]) & judged
        size = rollouts.group_size
        anchors = told_apart(correct, judged, size)
        scores = torch.tensor(self.score(rollouts, credit.verdicts), dtype=torch.float64)
        bonus = scaled_in_groups(scores, anchors, size, self.spread)
        spreads = torch.cat(gather(spread_in_groups(bonus, anchors, size)))
        metrics = {"bonus/spread": spreads.mean().item()} if len(spreads) else {}
        return credit.plus("bonus", bonus.to(credit.outcome), metrics=metrics)


def told_apart(correct: Bool[Tensor, " B"], judged: Bool[Tensor, " B"], group_size: int) -> Bool[Tensor, " B"]:
    """Returns the correct completions of groups with at least two correct ones and a wrong one."""
    right, wrong = (rows.view(-1, group_size).sum(dim=1) for rows in (correct, judged & ~correct))
    return correct & ((right > 1) & (wrong > 0)).repeat_interleave(group_size)


def scaled_in_groups(
    values: Float[Tensor, " B"], anchors: Bool[Tensor, " B"], group_size: int, spread: float
) -> Float[Tensor, " B"]:
    """Returns the anchors' values centred and scaled within their group to ``spread``; 0 elsewhere.

    0 also for anchors of a group whose values are all equal.
    """
    apart, sigma = _deviations(values, anchors, group_size)
    scaled = spread * apart / sigma.where(sigma > 0, 1.0)[:, None]
    return scaled.flatten().where(anchors, 0.0)


def spread_in_groups(values: Float[Tensor, " B"], anchors: Bool[Tensor, " B"], group_size: int) -> Float[Tensor, " P"]:
    """Returns σ of the anchors' values for each group with anchors."""
    _, sigma = _deviations(values, anchors, group_size)
    return sigma[anchors.view(-1, group_size).any(dim=1)]


def _deviations(
    values: Float[Tensor, " B"], anchors: Bool[Tensor, " B"], group_size: int
) -> tuple[Float[Tensor, "P G"], Float[Tensor, " P"]]:
    """Returns the deviations from the mean of the group's anchors, 0 elsewhere, and their root mean square."""
    rows, mask = values.view(-1, group_size), anchors.view(-1, group_size)
    count = mask.sum(dim=1).clamp(min=1)
    low, high = rows.where(mask, math.inf).amin(dim=1), rows.where(mask, -math.inf).amax(dim=1)
    mean = rows.where(mask, 0.0).sum(dim=1) / count
    # exactly 0 where all are equal, despite rounding of the mean; NaN stays, as it equals nothing
    apart = (rows - mean[:, None]).where(mask & (low != high)[:, None], 0.0)
    return apart, (apart.square().sum(dim=1) / count).sqrt()
