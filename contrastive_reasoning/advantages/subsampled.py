"""Subsampling of rollouts in proportion to their credit, with weights that keep the expected advantage.

        w_i = √(Σ_t A_it²)        π_i = min(1, c·w_i), c such that Σ π_i = share · B        A'_i = A_i / π_i or 0

Inverse probabilities (Horvitz and Thompson 1952) keep the expected gradient: E[A'] = A. Rows of zeros do not pass
through the policy, so an update costs about ``share`` of a full one. The gradient gets slightly noisier. The added
noise is least if few rollouts carry most of the credit, for example if most first moves have the same value.

The draw is systematic: one uniform number places a comb over the rows, its teeth 1 apart on the running sum of π.

    π     0.5 | 0.2 | 0.9      | 0.4         rows of one problem are adjacent, so problems are drawn about evenly
    comb   ↑ ——————————— 1 ——————— ↑
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, StatefulAdvantage
from contrastive_reasoning.distributed import gather_groups, own_groups
from contrastive_reasoning.ranges import within
from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rewards.controls import fixed_draw

SLACK = 1e-9
"""Tolerance for a running sum that rounding leaves just below a tooth."""


@dataclass(kw_only=True, eq=False)
class Subsampled:
    """``advantage`` on a random part of the rows, each divided by its probability of being drawn.

    A plain object. The caller saves its state, the number of batches, in the checkpoint; the draw is a function of that
    number and ``seed``.

    Raises ValueError for a share outside (0, 1].
    """

    advantage: Advantage
    """Any advantage; the state and metrics of a stateful one are included."""
    share: float
    """The expected share of rows that stay, in (0, 1]; it is smaller if fewer rows carry credit."""
    seed: int

    def __post_init__(self) -> None:
        within("(0, 1]", share=self.share)
        self.calls = 0
        """The number of rollout batches that the policy learned from."""
        self.kept = 0.0
        """The share of the last batch's rows that stayed."""

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        whole = self.advantage(credit, mask, group_size)
        # probabilities are computed over the rows of all ranks, and one comb covers them all
        carried = gather_groups(whole.double().square().sum(dim=1).sqrt(), group_size)
        chances = inclusion(carried, expected=self.share * len(carried))
        rows = systematic(chances, offset=fixed_draw("subsampled", self.seed, self.calls))
        self.calls += 1
        self.kept = rows.double().mean().item()
        weights = torch.where(rows, 1 / chances.clamp(min=torch.finfo(chances.dtype).tiny), 0.0)
        return whole * own_groups(weights, group_size).to(whole.dtype)[:, None]

    @property
    def metrics(self) -> dict[str, float]:
        """The share of rows kept, and the metrics of the inner advantage."""
        inner = self.advantage.metrics if isinstance(self.advantage, StatefulAdvantage) else {}
        return {**inner, "subsample/kept": self.kept}

    def state_dict(self) -> dict[str, Any]:
        """Returns the numbers of this object and the state of the inner advantage."""
        inner = self.advantage.state_dict() if isinstance(self.advantage, StatefulAdvantage) else {}
        return {"calls": self.calls, "kept": self.kept, "advantage": inner}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls, self.kept = state["calls"], state["kept"]
        if isinstance(self.advantage, StatefulAdvantage):
            self.advantage.load_state_dict(state["advantage"])


def inclusion(weights: Float[Tensor, " B"], *, expected: float) -> Float[Tensor, " B"]:
    """Returns probabilities proportional to ``weights``, capped at 1, that sum to ``expected``.

    If at most ``expected`` weights are positive, each of these has probability 1.
    """
    descending, order = weights.sort(descending=True)
    positive = int((descending > 0).sum())
    chances = torch.zeros_like(weights)
    if positive <= expected:
        chances[weights > 0] = 1.0
        return chances
    # the k largest get probability 1: k is the least for which the next one's share of the remainder is at most 1
    left = descending.sum() - descending.cumsum(0) + descending
    expected_left = expected - torch.arange(len(weights), dtype=weights.dtype, device=weights.device)
    certain = int((expected_left * descending > left).long().cumprod(0).sum())
    scaled = (expected_left[certain] / left[certain] * descending).clamp(max=1.0)
    scaled[:certain] = 1.0
    chances[order] = scaled
    return chances


def systematic(chances: Float[Tensor, " B"], *, offset: float) -> Bool[Tensor, " B"]:
    """Selects each row with its probability over a uniform ``offset`` in [0, 1); the count of rows hardly varies."""
    sums = chances.cumsum(0)
    teeth = (sums + offset + SLACK).floor()
    before = torch.cat([teeth.new_zeros(1), teeth[:-1]])
    return (teeth > before) & (chances > 0)
