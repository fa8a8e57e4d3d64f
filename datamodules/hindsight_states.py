"""Exact labels by exhaustive search: states of random play, and the goals that a search under each finds or rules out.

The search is exhaustive and small (three numbers have at most 48 lines of play). A state therefore yields as many exact
pairs as the batch has goals: reached ones and certified dead ends. A critic trained on them is a distilled oracle,
whatever its loss, and needs a game in which search is this cheap. If a state has more numbers than ``exhaust_up_to``,
only the values reached in one branch are known.

A finished play, with one number left, is a state like the others; a reward evaluates it after the last move. Random
play rarely ends on one of the targets, so every second finished play is set to one.

Goals come from the trajectories by hindsight (a value reached from each anchor) and from their problems. A problem has
one target, reached or not, which gives dead ends with the problem's own target. Goals of other trajectories are the
in-batch negatives. A pairing determines the goals for the anchors, and which pairs are positive, negative or unknown.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import lightning as L
import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy import ndarray
from torch.utils.data import DataLoader

from contrastive_reasoning.critics.base import NONE, CriticBatch, Pairing, Pairs
from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown.states import WIDTH
from datamodules.batch_stream import training_loader
from datamodules.game_states import VALIDATION, split_by_shares
from datamodules.oracle_states import ValidationLoaders, held_out_states, target_form, validation_loaders
from datamodules.random_play import VALUES, Plays, draw_anchors, encode_boards, keys_of, search_under


class EveryGoal:
    """Pairs every anchor with each distinct goal of the batch: many positives, many certified dead ends.

    For losses that take any number of positives (binary NCE). A goal that an unexhausted anchor is not known to reach
    counts as an in-batch negative. The exception is its own problem's target, which is then no candidate.
    """

    def __call__(
        self,
        hindsight: Int[ndarray, " A"],
        targets: Int[ndarray, " A"],
        reached: Bool[ndarray, "A V"],
        exhausted: Bool[ndarray, " A"],
    ) -> Pairs:
        goals = np.unique(np.concatenate([hindsight[hindsight != NONE], targets]))
        positive = reached[:, goals]
        own = goals[None] == targets[:, None]
        return Pairs(goals, positive, positive | exhausted[:, None] | ~own)


class OwnGoal:
    """Column i < A is anchor i's hindsight goal, its only positive; column A + i is its problem's own target.

    An anchor without a hindsight goal has no positive, and its column is not a candidate for any anchor.

    For losses that take one positive per row (InfoNCE). Pairs with the same goal and other pairs known to be reachable
    are not candidates. Target columns, and any column with the target of the anchor's own problem, are candidates only
    if the search certified a dead end.
    """

    def __call__(
        self,
        hindsight: Int[ndarray, " A"],
        targets: Int[ndarray, " A"],
        reached: Bool[ndarray, "A V"],
        exhausted: Bool[ndarray, " A"],
    ) -> Pairs:
        anchors = len(hindsight)
        goals = np.concatenate([hindsight, targets])
        positive = np.zeros((anchors, 2 * anchors), dtype=bool)
        positive[np.arange(anchors), np.arange(anchors)] = hindsight != NONE
        unreached = ~reached[:, goals] & (goals != NONE)
        unreached[:, anchors:] &= exhausted[:, None]
        unreached &= exhausted[:, None] | (goals[None] != targets[:, None])
        return Pairs(goals, positive, positive | unreached)


@dataclass(kw_only=True, eq=False, repr=False)
class HindsightStates(L.LightningDataModule):
    """Batches of A = ``batch_size`` anchors, each from its own trajectory of ``numbers`` numbers.

    ``state_actions`` (A, 6), ``goals`` (C,).
    """

    task: Task
    """Its validation and test problems are held out, and so are the fixed oracle states and their problems. No
    trajectory starts from the numbers of a held-out state, and no anchor has them, whatever its start.
    """
    numbers: int
    number_range: Sequence[int]
    target_range: Sequence[int]
    """Lowest and highest target of the trajectories' problems; also the range of the hindsight goals."""
    depth_shares: Sequence[float]
    """Share of the anchors after 0, 1, 2, … moves; each positive share gets at least one anchor. The share after
    ``numbers`` − 1 moves is that of the finished plays.
    """
    exhaust_up_to: int
    """Maximum size of a state for an exhaustive search under it. From a larger state the search follows one random
    branch down to this size.
    """
    pairing: Pairing
    batch_size: int
    validation_batches: int
    oracle_batch_size: int
    workers: int
    seed: int

    def __post_init__(self) -> None:
        super().__init__()
        if not 2 <= self.numbers <= WIDTH:
            raise ValueError(f"numbers must be 2 to {WIDTH}, got {self.numbers}")
        if not 1 <= len(self.depth_shares) <= self.numbers:
            raise ValueError(
                f"depth_shares needs 1 to {self.numbers} shares for {self.numbers} numbers, got {self.depth_shares}"
            )
        for name in ("number_range", "target_range"):
            bounds = tuple(getattr(self, name))
            if len(bounds) != 2 or not 0 <= bounds[0] <= bounds[1] < VALUES:
                choice = f"[lowest, highest] with 0 ≤ lowest ≤ highest ≤ {VALUES - 1}"
                raise ValueError(f"{name} must be {choice}, got {[*bounds]}")
            setattr(self, name, bounds)
        if self.exhaust_up_to < 1:
            raise ValueError(f"exhaust_up_to must be at least 1, a number left, got {self.exhaust_up_to}")
        self.depth_sizes = split_by_shares(self.batch_size, self.depth_shares)
        self.held_out: Int[ndarray, " H"] | None = None

    def setup(self, stage: str | None = None) -> None:
        if self.held_out is None:  # takes a second, and the validation before training sets up too
            self.held_out = keys_of(held_out_states(self.task))

    def batch(self, number: int, *, split: int = 0) -> CriticBatch:
        """Batch ``number``: a function of number, split and seed."""
        self.setup()
        rng = np.random.default_rng([self.seed, split, number])
        plays = [self._plays(moves, size, rng) for moves, size in enumerate(self.depth_sizes) if size]
        reached = np.concatenate([each.reached for each in plays])
        low, high = self.target_range
        pairs = self.pairing(
            draw_reached(reached, self.target_range, rng),
            rng.integers(low, high + 1, len(reached)),
            reached,
            np.concatenate([np.full(len(each.anchors), each.exhausted) for each in plays]),
        )
        return CriticBatch(
            state_actions=torch.cat([encode_boards(each.anchors) for each in plays]),
            goals=torch.from_numpy(pairs.goals),
            positive=torch.from_numpy(pairs.positive),
            candidate=torch.from_numpy(pairs.candidate),
        )

    def _plays(self, moves: int, size: int, rng: np.random.Generator) -> Plays:
        assert self.held_out is not None
        anchors = draw_anchors(
            size,
            numbers=self.numbers,
            number_range=self.number_range,
            moves=moves,
            held_out=self.held_out,
            rng=rng,
        )
        if anchors.shape[1] == 1:
            low, high = self.target_range
            anchors[::2, 0] = rng.integers(low, high + 1, len(anchors[::2]))
        return search_under(anchors, exhaust_up_to=self.exhaust_up_to, rng=rng)

    def train_dataloader(self) -> DataLoader[CriticBatch]:
        return training_loader(self.batch, trainer=self.trainer, workers=self.workers)

    def val_dataloader(self) -> ValidationLoaders:
        batches = [self.batch(number, split=VALIDATION) for number in range(self.validation_batches)]
        return validation_loaders(batches, target_form, batch_size=self.oracle_batch_size)


def draw_reached(
    reached: Bool[ndarray, "A V"], goal_range: Sequence[int], rng: np.random.Generator
) -> Int[ndarray, " A"]:
    """Draws one reached value per row, uniform over those in the range; ``NONE`` if the row reached none of them."""
    low, high = goal_range
    choices = reached[:, low : high + 1]
    rank = (rng.random(len(reached)) * choices.sum(axis=1)).astype(np.int64)
    drawn = (choices.cumsum(axis=1) > rank[:, None]).argmax(axis=1) + low
    return np.where(choices.any(axis=1), drawn, NONE)
