"""The pairwise critic: a joint critic whose trunk reads a state as pairs of numbers, because a move uses a pair.

    h   = Σᵢ W xᵢ + Σ_{i<j} block(…block(A [xᵢ, xⱼ, Σ_{k≠i,j} x_k] + O (U xᵢ ⊙ V xⱼ)))
    out = LayerNorm(block(h))                        block(x) = x + W₂ (gelu(W₁ x′) ⊙ W₃ x′),  x′ = LayerNorm(x)

All pairs share their weights. xᵢ are a number's features: those of the joint critic, and waves over its logarithm. A
product of waves is the wave of a sum or a difference: of v for + and −, of log v for × and ÷. The critic computes no
moves.
"""

from __future__ import annotations

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.nn.functional import gelu

from contrastive_reasoning.critics.joint import JointCritic, fixed_features
from contrastive_reasoning.tasks.countdown.states import WIDTH

LOG_WAVES = 12
"""Number of waves over log₁₀ v: the first makes half a turn per decade, each next one √2 times as many."""


def features_with_logarithms(numbers: Int[Tensor, " N"]) -> Float[Tensor, "N W"]:
    """Returns sin and cos of 2πω·log₁₀ max(v, ½) for each ω = ½·2^(i/2) (0 for padding), then ``fixed_features``."""
    value = numbers.double()[:, None]
    turns = 0.5 * 2 ** (torch.arange(LOG_WAVES, dtype=torch.double) / 2)
    angle = 2 * math.pi * turns * value.clamp(min=0.5).log10()
    waves = torch.cat([angle.sin(), angle.cos()], dim=1).masked_fill(value < 0, 0.0)
    return torch.cat([waves.float(), fixed_features(numbers)], dim=1)


class GatedBlock(nn.Module):
    """x + W₂ (gelu(W₁ LayerNorm(x)) ⊙ W₃ LayerNorm(x)), arXiv:2002.05202's GEGLU."""

    def __init__(self, *, width: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.rise = nn.Linear(width, 2 * width)
        self.fall = nn.Linear(width, width)

    def forward(self, x: Float[Tensor, "N W"]) -> Float[Tensor, "N W"]:
        gate, value = self.rise(self.norm(x)).chunk(2, dim=-1)
        return x + self.fall(gelu(gate) * value)


class PairTrunk(nn.Module):
    """Flattened features of six numbers → ``width``; the last feature of each number is its padding flag.

    Args:
        seen: the number of features of a number.
        blocks: blocks over each pair; one more block follows over their sum.
    """

    pairs: Tensor

    def __init__(self, *, seen: int, width: int, blocks: int) -> None:
        super().__init__()
        self.alone = nn.Linear(seen, width)
        self.linear = nn.Linear(3 * seen, width)
        self.first, self.second = nn.Linear(seen, width), nn.Linear(seen, width)
        self.product = nn.Linear(width, width)
        self.pair_blocks = nn.Sequential(*[GatedBlock(width=width) for _ in range(blocks)])
        self.state = nn.Sequential(GatedBlock(width=width), nn.LayerNorm(width))
        self.register_buffer("pairs", torch.combinations(torch.arange(WIDTH)).T, persistent=False)

    def forward(self, features: Float[Tensor, "N F"]) -> Float[Tensor, "N W"]:
        numbers = features.unflatten(1, (WIDTH, -1))
        present = numbers[..., -1] == 0
        numbers = numbers * present[..., None]
        i, j = self.pairs
        rows, columns = (present[:, i] & present[:, j]).nonzero(as_tuple=True)
        one, other = numbers[rows, i[columns]], numbers[rows, j[columns]]
        whole = numbers.sum(dim=1)
        pair = self.linear(torch.cat([one, other, whole[rows] - one - other], dim=1))
        pair = self.pair_blocks(pair + self.product(self.first(one) * self.second(other)))
        singles = self.alone(numbers).sum(dim=1)
        return self.state(singles.index_add(0, rows, pair.to(singles.dtype)))  # autocast on CUDA sums in float32


class PairwiseCritic(JointCritic):
    """f(state; target) for Countdown with the arguments of ``JointCritic``; ``blocks`` counts the blocks over pairs."""

    fixed_features = staticmethod(features_with_logarithms)

    @staticmethod
    def build_trunk(*, seen: int, width: int, blocks: int) -> nn.Module:
        return PairTrunk(seen=seen, width=width, blocks=blocks)
