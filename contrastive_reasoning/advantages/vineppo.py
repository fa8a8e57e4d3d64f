"""VinePPO, arXiv:2410.01679: a step is credited with the change in the value of the state.

        A_{i,t} = outcome_{i,t} + weight · (V(s_{i,k}) − V(s_{i,k−1}))      t in step k of rollout i, s_{i,0} the start

The credit of a rollout's steps telescopes to V(last) − V(start). Tokens outside every legal step have the outcome's
advantage alone. A step that follows an illegal one is credited with the change of both.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, on_step_tokens, refuse_memory
from contrastive_reasoning.rewards.base import Credit, StepCredit


@dataclass(frozen=True, kw_only=True)
class VinePPO:
    """Requires values of steps and starts; a rollout that ends after its last step must have its verdict there."""

    outcome: Advantage
    """The advantage of the whole rollout. The paper has none; it also credits tokens outside legal steps."""
    weight: float

    def __post_init__(self) -> None:
        refuse_memory(type(self).__name__, self.outcome)

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        if credit.steps is None or credit.starts is None:
            raise ValueError(
                "advantage=vineppo needs a reward that values steps and the state before them (monte_carlo); "
                f"this one has: {credit.named}"
            )
        # a rollout on which the reward failed has no steps, as it has no advantage
        steps = [[] if row in credit.failures else steps for row, steps in enumerate(credit.steps)]
        gained = credit.outcome.new_tensor(list(gains(credit.starts, steps)))
        return self.outcome(credit, mask, group_size) + self.weight * on_step_tokens(steps, gained, mask)


def gains(starts: Sequence[float], steps: Sequence[Sequence[StepCredit]]) -> Iterator[float]:
    """Yields the change in value at each step, in order of rollout and writing."""
    for start, row in zip(starts, steps, strict=True):
        for before, after in pairwise([start, *(step.value for step in row)]):
            yield after - before
