"""The joint critic: a small network of state and goal in addition to their inner product.

    f(s, g) = φ(s)ᵀψ(g)/√D + m(φ′(s) ⊙ ψ′(g)) + b

φ and φ′ are computed by one residual trunk over the sorted numbers, ψ and ψ′ from the goal's features; m is an MLP with
one hidden layer. The trunk runs once per state and m once per pair, so training on all pairs of a batch is affordable:
a state learns from every goal that the search below it reached or excluded.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu

from contrastive_reasoning.critics.base import numbers_and_target
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown.states import PADDING, WIDTH, encode_state

VALUES = 2000
"""Numbers from this value on share one embedding row; moves only produce smaller ones."""
PERIODS = (2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 20, 25, 32, 50, 64, 100, 200, 500, 1000)


class NumberFeatures(nn.Module):
    """Integers ≥ −1 (−1 is padding) → feature vectors of ``width`` numbers: an embedding, sines and cosines, and size.

    The embedding distinguishes values, the waves encode divisibility and proximity (period 2 is parity, period 10 the
    last digit), and the size orders them. The choice of features is empirical.

    Args:
        dimension: width of the learned part; the fixed part is added to it.
        fixed: numbers (N,) → their fixed features (N, W).
    """

    waves: Tensor

    def __init__(self, *, dimension: int, fixed: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VALUES + 2, dimension)
        nn.init.normal_(self.embedding.weight, std=0.3)
        self.register_buffer("waves", fixed(torch.arange(PADDING, VALUES + 1)), persistent=False)
        self.width = dimension + self.waves.shape[1]

    def forward(self, numbers: Int[Tensor, "*shape"]) -> Float[Tensor, "*shape F"]:
        rows = numbers.clamp(PADDING, VALUES) - PADDING
        return torch.cat([self.embedding(rows), self.waves[rows]], dim=-1)


def fixed_features(numbers: Int[Tensor, " N"]) -> Float[Tensor, "N W"]:
    """Returns sin and cos of 2πv/period per period, v/50, v/500, log(1+v), all 0 for padding, and a padding flag."""
    value = numbers.double()[:, None]  # in float32 the waves are off by up to 4e-4
    angle = 2 * math.pi * value / torch.tensor(PERIODS, dtype=torch.double)
    size = torch.cat([value / 50, value / 500, value.clamp(min=0).log1p()], dim=1)
    padding = value < 0
    seen = torch.cat([angle.sin(), angle.cos(), size], dim=1).masked_fill(padding, 0.0)
    return torch.cat([seen, padding.double()], dim=1).float()


class ResidualBlock(nn.Module):
    """x + W₂ gelu(W₁ LayerNorm(x))."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.rise = nn.Linear(width, width)
        self.fall = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "N W"]) -> Float[Tensor, "N W"]:
        return x + self.fall(gelu(self.rise(self.norm(x))))


class JointCritic(nn.Module):
    """f(state; target) for Countdown.

    ``state_actions`` is (N, 6) long: numbers in any order, padded with −1; the critic sorts them, so their order has no
    effect. ``goals`` is (N,) long: targets.

    Args:
        dimension: D, the width of φ and ψ.
        join_dimension: width of φ′ and ψ′, and of m's hidden layer.
        pairs_per_chunk: approximate maximum number of pairs per call of m, which bounds memory and changes no value.
    """

    values_states = True
    fixed_features = staticmethod(fixed_features)

    def __init__(
        self,
        *,
        value_dimension: int,
        width: int,
        blocks: int,
        dimension: int,
        join_dimension: int,
        pairs_per_chunk: int,
        seed: int,
    ) -> None:
        super().__init__()
        at_least(1, pairs_per_chunk=pairs_per_chunk)
        self.dimension = dimension
        self.pairs_per_chunk = pairs_per_chunk
        with seeded(seed):  # the initial weights depend on the order of these lines
            self.features = NumberFeatures(dimension=value_dimension, fixed=self.fixed_features)
            seen = self.features.width
            self.trunk = self.build_trunk(seen=seen, width=width, blocks=blocks)
            self.goal_trunk = nn.Sequential(nn.Linear(seen, dimension), nn.GELU())
            self.state_head = nn.Linear(width, dimension)
            self.goal_head = nn.Linear(dimension, dimension)
            self.state_join = nn.Linear(width, join_dimension)
            self.goal_join = nn.Linear(dimension, join_dimension)
            self.join = nn.Sequential(
                nn.Linear(join_dimension, join_dimension), nn.GELU(), nn.Linear(join_dimension, 1)
            )
        # b starts at a low probability, because most goals are out of reach
        self.bias = nn.Parameter(torch.tensor([-2.0]))  # one-dimensional, because ZeRO cannot partition a scalar

    @staticmethod
    def build_trunk(*, seen: int, width: int, blocks: int) -> nn.Module:
        """Builds the trunk: flattened features (N, 6, ``seen``) of six sorted numbers → (N, ``width``)."""
        trunk = [ResidualBlock(width=width) for _ in range(blocks)]
        return nn.Sequential(nn.Linear(WIDTH * seen, width), *trunk, nn.LayerNorm(width))

    def forward(self, state_actions: Int[Tensor, "A 6"], goals: Int[Tensor, " C"]) -> Float[Tensor, "A C"]:
        """Returns f for every state with every target; a target that occurs in several columns is scored once."""
        targets, columns = goals.unique(return_inverse=True)
        state, goal = self._state_trunk(state_actions), self._goal_trunk(targets)
        inner = self.state_head(state) @ self.goal_head(goal).T
        anchors = max(1, self.pairs_per_chunk // max(1, len(goal)))
        of_goals = self.goal_join(goal)[None]
        joined = [self.join(rows[:, None] * of_goals)[..., 0] for rows in self.state_join(state).split(anchors)]
        return self._sum(inner, torch.cat(joined))[:, columns]

    def pairs(self, state_actions: Int[Tensor, "N 6"], goals: Int[Tensor, " N"]) -> Float[Tensor, " N"]:
        """Returns f for N states, each with its own target."""
        state, goal = self._state_trunk(state_actions), self._goal_trunk(goals)
        inner = (self.state_head(state) * self.goal_head(goal)).sum(dim=1)
        return self._sum(inner, self.join(self.state_join(state) * self.goal_join(goal))[:, 0])

    def encode_state_action(self, state_actions: Int[Tensor, "N 6"]) -> Float[Tensor, "N D"]:
        """Returns φ; f has further terms besides its inner product with ψ."""
        return self.state_head(self._state_trunk(state_actions))

    def encode_goal(self, goals: Int[Tensor, " N"]) -> Float[Tensor, "N D"]:
        """Returns ψ."""
        return self.goal_head(self._goal_trunk(goals))

    def encode_steps(
        self, problem: Problem, completion: str, steps: Sequence[Step]
    ) -> tuple[Int[Tensor, "N 6"], Int[Tensor, " N"]]:
        """Encodes the numbers that each step leaves as the state and the problem's target as the goal."""
        _, target = numbers_and_target(problem)
        states = torch.tensor([encode_state(step.state) for step in steps], dtype=torch.long).reshape(-1, WIDTH)
        return states, torch.full((len(steps),), target, dtype=torch.long)

    def _state_trunk(self, states: Int[Tensor, "N 6"]) -> Float[Tensor, "N W"]:
        return self.trunk(self.features(states.sort(dim=1, descending=True).values).flatten(start_dim=1))

    def _goal_trunk(self, goals: Int[Tensor, " N"]) -> Float[Tensor, "N G"]:
        return self.goal_trunk(self.features(goals))

    def _sum(self, inner: Float[Tensor, "*N"], joined: Float[Tensor, "*N"]) -> Float[Tensor, "*N"]:
        return inner / math.sqrt(self.dimension) + joined + self.bias
