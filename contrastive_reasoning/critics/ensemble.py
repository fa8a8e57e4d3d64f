"""Several critics of one kind with different initial weights: they agree where the data determine f, else they differ.

    f = mean over members of f_m          disagreement = 2 · mean over steps of std over members of σ(f_m / τ)

Each member learns by its own loss on its own draw of the batch. A loss of the mean would let the members specialise,
and their differences would then not measure uncertainty.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from contrastive_reasoning.critics.base import Critic, values_states
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.tasks.base import Problem, Step

SEED_STRIDE = 1_000_003


class EnsembleCritic(nn.Module):
    """The mean of ``size`` critics, which are trained in one fit and saved and loaded as one.

    ``member`` builds a critic from its seed. ``seed`` is that of the first member and determines the others.

    Raises ValueError: ``size`` is below 2.
    """

    is_ensemble = True

    def __init__(self, *, member: Callable[..., Critic], size: int, seed: int) -> None:
        super().__init__()
        at_least(2, size=size)
        members: list[Any] = [member(seed=seed + SEED_STRIDE * m) for m in range(size)]
        self.members: Any = nn.ModuleList(members)
        self.root = size**0.5

    @property
    def values_states(self) -> bool:
        """Whether every member values states."""
        return all(values_states(member) for member in self.members)

    def forward(self, state_actions: Any, goals: Any) -> Float[Tensor, "A C"]:
        """Returns the mean f for every anchor with every goal."""
        return torch.stack([member(state_actions, goals) for member in self.members]).mean(dim=0)

    def pairs(self, state_actions: Any, goals: Any) -> Float[Tensor, " N"]:
        """Returns the mean f for N anchors, each with its own goal."""
        return self.member_pairs(state_actions, goals).mean(dim=0)

    def member_pairs(self, state_actions: Any, goals: Any) -> Float[Tensor, "M N"]:
        """Returns every member's f for N anchors, each with its own goal."""
        return torch.stack([member.pairs(state_actions, goals) for member in self.members])

    def encode_state_action(self, state_actions: Any) -> Float[Tensor, "A D"]:
        """Returns the members' φ, concatenated and scaled: if all f_m are inner products, so is their mean."""
        return torch.cat([member.encode_state_action(state_actions) for member in self.members], 1) / self.root

    def encode_goal(self, goals: Any) -> Float[Tensor, "C D"]:
        """Returns the members' ψ, concatenated and scaled."""
        return torch.cat([member.encode_goal(goals) for member in self.members], 1) / self.root

    def encode_steps(self, problem: Problem, completion: str, steps: Sequence[Step]) -> tuple[Any, Any]:
        """Encodes the steps as the first member does; all members are of one kind."""
        return self.members[0].encode_steps(problem, completion, steps)


def disagreement(logits: Float[Tensor, "M N"]) -> float:
    """Returns twice the mean, over N steps, of the standard deviation of σ(logit) over M members: in [0, 1].

    It is 1 if at every step half of the members are certain of success and half of failure. It is 0 if all members
    agree or there are no steps. The variance divides by M, because otherwise two members could exceed 1.
    """
    if not logits.numel():
        return 0.0
    return 2 * logits.double().sigmoid().std(dim=0, correction=0).mean().clamp(max=0.5).item()
