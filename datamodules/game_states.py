"""Batches of a game's states with goals: what all critics' data of random states share, whatever labels the pairs.

Each anchor is the state of a play of its own, after a number of random moves that ``depth_shares`` distributes. So the
data of two kinds of supervision differ in their labels alone.
"""

from __future__ import annotations

from abc import abstractmethod
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch.utils.data import DataLoader

from contrastive_reasoning.critics.base import NONE, CriticBatch, Pairs
from contrastive_reasoning.tasks.base import Split
from datamodules.batch_stream import BatchData
from datamodules.game import Game
from datamodules.oracle_states import ValidationLoaders

SEED_OF_SPLIT: dict[Split, int] = {"train": 0, "validation": 1_000_000_007}


@dataclass(kw_only=True, eq=False, repr=False)
class GameStates(BatchData[CriticBatch]):
    """Batches of A = ``batch_size`` anchors: features of the game (A, …) and integer goals (C,)."""

    game: Game
    depth_shares: Sequence[float]
    """Share of the anchors after 0, 1, 2, … moves; each positive share gets at least one anchor."""
    batch_size: int
    oracle_batch_size: int
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        horizon = self.game.horizon
        if not 1 <= len(self.depth_shares) <= horizon + 1:
            raise ValueError(
                f"depth_shares needs 1 to {horizon + 1} shares for plays of {horizon} moves, got {self.depth_shares}"
            )
        self.depth_sizes = split_by_shares(self.batch_size, self.depth_shares)

    @abstractmethod
    def columns(self, anchors: Mapping[int, Int[ndarray, "_ _"]], rng: np.random.Generator) -> Pairs:
        """Chooses the goals and labels the pairs of a batch. ``anchors`` are by the number of moves before them."""

    def batch(self, number: int, *, split: Split = "train") -> CriticBatch:
        anchors, columns = self._draw(number, split)
        return CriticBatch(
            state_actions=torch.cat([self.game.features(states) for states in anchors.values()]),
            goals=torch.from_numpy(columns.goals.astype(np.int64)),
            positive=torch.from_numpy(columns.positive),
            candidate=torch.from_numpy(columns.candidate),
        )

    def label_report(self) -> Mapping[str, float]:
        """Returns the share of the reachable pairs that count only as negatives, by the moves before the anchor.

        The pairs are those of the validation batches' anchors with their distinct goals. Empty if the game has no exact
        search, and without the depths at which nothing is reachable.
        """
        missed: dict[int, list[bool]] = defaultdict(list)
        for number in range(self.validation_batches):
            anchors, columns = self._draw(number, "validation")
            known = columns.goals != NONE
            goals, place = np.unique(columns.goals[known], return_inverse=True)
            hits, negatives = (np.zeros((len(columns.positive), len(goals)), dtype=bool) for _ in range(2))
            # not hits[:, place] |= …: of several columns with the same goal only the last would count
            np.logical_or.at(hits.T, place, columns.positive[:, known].T)
            np.logical_or.at(negatives.T, place, columns.candidate[:, known].T)
            by_depth = np.split(negatives & ~hits, np.cumsum([len(states) for states in anchors.values()])[:-1])
            for (moves, states), negative in zip(anchors.items(), by_depth, strict=True):
                reachable = self.game.reachable(states, goals)
                if reachable is not None:
                    missed[moves].extend(negative[reachable])
        return {f"reachable_negatives_depth{moves}": float(np.mean(each)) for moves, each in missed.items() if each}

    def val_dataloader(self) -> ValidationLoaders:
        parts = self.fixed_batches(), self.game.oracle_batches(self.oracle_batch_size)
        return [DataLoader(part, batch_size=None) for part in parts if part]  # pyright: ignore

    def _draw(self, number: int, split: Split) -> tuple[dict[int, Int[ndarray, "_ _"]], Pairs]:
        rng = np.random.default_rng([self.seed, SEED_OF_SPLIT[split], number])
        anchors = {
            moves: self.game.anchors(size, moves=moves, rng=rng) for moves, size in enumerate(self.depth_sizes) if size
        }
        return anchors, self.columns(anchors, rng)


def split_by_shares(total: int, shares: Sequence[float]) -> list[int]:
    """Splits ``total`` in proportion to ``shares``.

    Each positive share gets at least one, and the largest part absorbs the rounding.

    Raises:
        ValueError: if a share is negative, none is positive, or more shares are positive than ``total``.
    """
    positive = sum(share > 0 for share in shares)
    if min(shares) < 0 or not 0 < positive <= total:
        raise ValueError(f"shares must be ≥ 0, with 1 to {total} above 0, got {list(shares)}")
    sizes = [max(1, int(total * share / sum(shares))) if share > 0 else 0 for share in shares]
    sizes[sizes.index(max(sizes))] += total - sum(sizes)
    return sizes
