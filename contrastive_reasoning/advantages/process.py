"""Per-step credit: the values of steps, compared within (group, depth), added on the tokens of the step.

        A_{i,t} = outcome_{i,t} + weight · (v_{i,k} − mean_d) / (std_d + ε)   t in step k of rollout i, d = d_{i,k}

mean_d and std_d are over all steps of the group at depth d, so values that fall with depth do not favour early steps. A
rollout that lists moves has one step at each depth. A rollout that searches backtracks, and each of its steps at a
depth counts. An illegal step counts as 0 at the depth that it would have led to: without it, breaking a rule would be
better than a legal move that is blamed. A scalar per rollout cannot express this credit: with γ = 1 a sum of potential
differences telescopes to the same constant for the whole group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, by_group, on_step_tokens, refuse_memory, with_illegal
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards.base import Credit


@dataclass(frozen=True, kw_only=True)
class Process:
    outcome: Advantage
    """The advantage of the whole rollout."""
    weight: float
    epsilon: float
    """Added to the standard deviation of the step values."""

    def __post_init__(self) -> None:
        refuse_memory(type(self).__name__, self.outcome)
        at_least(0, epsilon=self.epsilon)

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        if credit.steps is None:
            raise ValueError(
                f"a per-step advantage needs a reward that values steps (oracle, perfect_move, critic); "
                f"this one only has: {credit.named}"
            )
        outcome = self.outcome(credit, mask, group_size)
        by_group(credit.outcome, group_size)  # raises for a batch that is not whole groups
        steps = with_illegal(credit)
        values = credit.outcome.new_tensor([step.value for row in steps for step in row])
        relative = torch.zeros_like(values)
        for indices in peers([[step.depth for step in row] for row in steps], group_size):
            relative[indices] = normalise(values[indices], epsilon=self.epsilon)
        return outcome + self.weight * on_step_tokens(steps, relative, mask)


def peers(depths: Sequence[Sequence[int | None]], group_size: int) -> list[list[int]]:
    """Returns sets of steps of one group and depth, as indices in order of rollout and writing; None is left out."""
    found: dict[tuple[int, int], list[int]] = {}
    flat = [(row // group_size, depth) for row, of_row in enumerate(depths) for depth in of_row]
    for index, (group, depth) in enumerate(flat):
        if depth is not None:
            found.setdefault((group, depth), []).append(index)
    return list(found.values())


def normalise(values: Float[Tensor, " N"], *, epsilon: float) -> Float[Tensor, " N"]:
    """Returns (v − mean) / (std + ε); exactly 0 if all are equal (a rounded mean may differ from its terms)."""
    if values.min() == values.max():
        return torch.zeros_like(values)
    return (values - values.mean()) / (values.std() + epsilon)
