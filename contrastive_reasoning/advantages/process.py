"""Per-step credit: the values of steps, compared within (group, step index), added on the tokens of the step.

        A_{i,t} = outcome_{i,t} + weight · (v_{i,k} − mean_k) / (std_k + ε)     for t in step k of rollout i

The k-th step of a rollout is compared with the k-th steps of its group: the states there are equally deep, so a value
that falls with depth does not make early steps look good. A scalar per rollout could not carry this: with γ = 1 a sum
of potential differences telescopes to the same constant for the whole group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, by_group
from contrastive_reasoning.rewards.base import Credit, StepCredit


@dataclass(frozen=True, kw_only=True)
class Process:
    outcome: Advantage
    """The advantage of the whole rollout."""
    weight: float
    epsilon: float
    """Added to the standard deviation of the step values."""

    def __post_init__(self) -> None:
        if self.epsilon < 0:
            raise ValueError(f"epsilon must not be negative, got {self.epsilon}")

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        if credit.steps is None:
            raise ValueError(
                f"a per-step advantage needs a reward that values steps (oracle, perfect_move, critic); "
                f"this one only has: {', '.join(credit.parts) or 'nothing'}"
            )
        outcome = self.outcome(credit, mask, group_size)
        values = step_values(credit.steps, like=credit.outcome)
        relative = within_group_and_step(values, group_size, epsilon=self.epsilon)
        return outcome + self.weight * on_step_tokens(credit.steps, relative, mask)


def step_values(steps: Sequence[Sequence[StepCredit]], *, like: Tensor) -> Float[Tensor, "B K"]:
    """Values by step index, nan where a rollout has fewer steps than the longest."""
    width = max((len(row) for row in steps), default=0)
    rows = [[step.value for step in row] + [float("nan")] * (width - len(row)) for row in steps]
    return torch.tensor(rows, dtype=like.dtype, device=like.device).view(len(steps), width)


def within_group_and_step(values: Float[Tensor, "B K"], group_size: int, *, epsilon: float) -> Float[Tensor, "B K"]:
    """Values normalised over the rollouts of the group that have a k-th step.

    Exactly 0 where there is none, where no other rollout has one, and where all are equal.
    """
    by_group(values[:, :0].sum(dim=1), group_size)  # refuses what is not whole groups
    groups = values.view(len(values) // group_size, group_size, values.shape[1])
    present = ~groups.isnan()
    filled = groups.nan_to_num()
    count = present.sum(dim=1, keepdim=True)
    deviation = (filled - filled.sum(dim=1, keepdim=True) / count.clamp_min(1)) * present
    std = (deviation.square().sum(dim=1, keepdim=True) / (count - 1).clamp_min(1)).sqrt()
    highest = groups.nan_to_num(nan=-torch.inf).amax(dim=1, keepdim=True)
    lowest = groups.nan_to_num(nan=torch.inf).amin(dim=1, keepdim=True)
    varied = (count > 1) & (highest != lowest)
    return torch.where(present & varied, deviation / (std + epsilon), 0.0).view(values.shape)


def on_step_tokens(
    steps: Sequence[Sequence[StepCredit]], values: Float[Tensor, "B K"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Each step's value on its tokens; tokens outside every step get 0."""
    table = values.tolist()
    on_tokens = torch.zeros(mask.shape, dtype=values.dtype)
    for row, credits in enumerate(steps):
        for k, step in enumerate(credits):
            on_tokens[row, step.first_token : step.last_token + 1] += table[row][k]
    return on_tokens.to(values.device) * mask
