"""Learn from a part of the rollouts, drawn by how much credit they carry and weighted so that the mean stays.

        w_i = √(Σ_t A_it²)        π_i = min(1, c·w_i), c such that Σ π_i = share · B        A'_i = A_i / π_i or 0

Inverse probabilities (Horvitz and Thompson 1952) keep the expected gradient: E[A'] = A. A row of zeros does not pass
through the policy, so an update costs about ``share`` of what it did. What it takes is a little more noise: least where
few rollouts carry most of the credit, as where most first moves are of the same worth.

The draw is systematic: one uniform number places a comb over the rows, its teeth 1 apart on the running sum of π.

    π     0.5 | 0.2 | 0.9      | 0.4         rows of one problem stand together, so problems are drawn about evenly
    comb   ↑ ——————————— 1 ——————— ↑
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, StatefulAdvantage
from contrastive_reasoning.distributed import gather_groups, own_groups
from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rewards.controls import fixed_draw

SLACK = 1e-9
"""For a running sum that rounding has left just below a tooth."""


class Subsampled:
    """``advantage`` on a part of the rows, divided by the chance that each had to be in it.

    A plain object whose state, the number of batches, is in the checkpoint of who calls it: the draw is a function of
    that and ``seed``.

    Args:
        advantage: any; of one with a memory, state and metrics are kept.
        share: of the rows that are expected to stay, in (0, 1]; fewer where not so many carry credit.
        seed: of the draws.

    Raises ValueError for a share outside (0, 1].
    """

    def __init__(self, *, advantage: Advantage, share: float, seed: int) -> None:
        if not 0 < share <= 1:
            raise ValueError(f"share must lie in (0, 1], got {share}")
        self.advantage = advantage
        self.share = share
        self.seed = seed
        self.calls = 0
        """Rollout batches that the policy learned from."""
        self.kept = 0.0
        """The share of rows of the last batch that stayed."""

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        whole = self.advantage(credit, mask, group_size)
        # chances are computed over the rows of all ranks, and one comb passes over them
        carried = gather_groups(whole.double().square().sum(dim=1).sqrt(), group_size)
        chances = inclusion(carried, expected=self.share * len(carried))
        rows = systematic(chances, offset=fixed_draw("subsampled", self.seed, self.calls))
        self.calls += 1
        self.kept = rows.double().mean().item()
        weights = torch.where(rows, 1 / chances.clamp(min=torch.finfo(chances.dtype).tiny), 0.0)
        return whole * own_groups(weights, group_size).to(whole.dtype)[:, None]

    @property
    def metrics(self) -> dict[str, float]:
        """The share of rows kept, and the metrics of the advantage within."""
        inner = self.advantage.metrics if isinstance(self.advantage, StatefulAdvantage) else {}
        return {**inner, "subsample/kept": self.kept}

    def state_dict(self) -> dict[str, Any]:
        """Numbers, and the state of the advantage within."""
        inner = self.advantage.state_dict() if isinstance(self.advantage, StatefulAdvantage) else {}
        return {"calls": self.calls, "kept": self.kept, "advantage": inner}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls, self.kept = state["calls"], state["kept"]
        if isinstance(self.advantage, StatefulAdvantage):
            self.advantage.load_state_dict(state["advantage"])


def inclusion(weights: Float[Tensor, " B"], *, expected: float) -> Float[Tensor, " B"]:
    """Chances proportional to ``weights``, none above 1, that sum to ``expected``, or to how many weights there are."""
    descending, order = weights.sort(descending=True)
    positive = int((descending > 0).sum())
    chances = torch.zeros_like(weights)
    if positive <= expected:
        chances[weights > 0] = 1.0
        return chances
    # the largest k are certain: k is the least for which the next one's share of what is left is at most 1
    left = descending.sum() - descending.cumsum(0) + descending
    expected_left = expected - torch.arange(len(weights), dtype=weights.dtype, device=weights.device)
    certain = int((expected_left * descending > left).long().cumprod(0).sum())
    scaled = (expected_left[certain] / left[certain] * descending).clamp(max=1.0)
    scaled[:certain] = 1.0
    chances[order] = scaled
    return chances


def systematic(chances: Float[Tensor, " B"], *, offset: float) -> Bool[Tensor, " B"]:
    """Each row with its chance over a uniform ``offset`` in [0, 1), and always about as many rows."""
    sums = chances.cumsum(0)
    teeth = (sums + offset + SLACK).floor()
    before = torch.cat([teeth.new_zeros(1), teeth[:-1]])
    return (teeth > before) & (chances > 0)
