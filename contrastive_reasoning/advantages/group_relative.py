"""Rewards relative to their group: divided by its standard deviation (GRPO), centred, or against the others (RLOO).

GroupRelative    Aᵢ = (rᵢ − mean(r)) / (std(r) + ε)         arXiv:2402.03300
MeanCentred      Aᵢ = rᵢ − mean(r)                          Dr.GRPO, arXiv:2503.20783
LeaveOneOut      Aᵢ = rᵢ − mean of the other rewards        RLOO, arXiv:2402.14740
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import by_group
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards.base import Credit


@dataclass(frozen=True, kw_only=True)
class GroupRelative:
    """The outcome relative to its group, the same on every token. A group of equal rewards gets exactly 0.

    The standard deviation divides by G − 1.
    """

    normalise_std: bool
    epsilon: float
    """Added to the standard deviation."""

    def __post_init__(self) -> None:
        at_least(0, epsilon=self.epsilon)

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        return apply_per_group(credit, mask, group_size, self.relative)

    def relative(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        """Returns the advantages of whole groups."""
        advantages = centre(rewards)
        if not self.normalise_std:
            return advantages
        spread = rewards.std(dim=1, keepdim=True) + self.epsilon
        # 1 for a group of equal rewards: with ε = 0 its advantages would be 0/0
        return advantages / spread.where(advantages.any(dim=1, keepdim=True), spread.new_ones(()))


@dataclass(frozen=True, kw_only=True)
class LeaveOneOut:
    """The outcome minus an unbiased baseline: the mean over the other rollouts of the group.

    rᵢ − (Σr − rᵢ)/(G−1)  =  G/(G−1) · (rᵢ − mean(r)),  so it is the mean-centred advantage, rescaled.
    """

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        return apply_per_group(credit, mask, group_size, self.relative)

    def relative(self, rewards: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
        """Returns the advantages of whole groups."""
        size = rewards.shape[1]
        return centre(rewards) * (size / (size - 1))


@dataclass(frozen=True, kw_only=True)
class MeanCentred:
    """``GroupRelative`` without the division, so that problems with rare successes get no extra weight."""

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        return GroupRelative(normalise_std=False, epsilon=0.0)(credit, mask, group_size)


def apply_per_group(
    credit: Credit,
    mask: Bool[Tensor, "B T"],
    group_size: int,
    formula: Callable[[Float[Tensor, "P G"]], Float[Tensor, "P G"]],
) -> Float[Tensor, "B T"]:
    """Applies ``formula`` to the outcomes of each group, without the rollouts on which the reward failed.

        outcome    1  0  –  1      formula(1 0 1) = a b c      a  b  0  c      on each token of the rollout

    A group with failures is treated as a smaller group; with fewer than two rewarded rollouts all its values are 0.
    """
    outcomes = by_group(credit.outcome, group_size)
    if credit.failures:
        rewarded = torch.ones_like(outcomes, dtype=torch.bool)
        rewarded.view(-1)[list(credit.failures)] = False
        relative = torch.zeros_like(outcomes)
        for row, members in enumerate(rewarded):
            if members.sum() > 1:
                relative[row, members] = formula(outcomes[row, members][None])[0]
    else:
        relative = formula(outcomes)
    return relative.reshape(-1, 1) * mask


def centre(groups: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
    """Subtracts each group's mean; exactly 0 if a group's values are equal (a rounded mean may differ from them)."""
    varied = groups.amax(dim=1, keepdim=True) != groups.amin(dim=1, keepdim=True)
    return (groups - groups.mean(dim=1, keepdim=True)) * varied
