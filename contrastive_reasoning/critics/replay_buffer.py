"""A bounded replay buffer of the states that a policy visited, with the values known to be reachable from each.

The oldest state is removed first. Critics of states alone (Countdown: six numbers against a target) learn from it. A
batch is drawn like one of random play: an anchor has a value that was reached from it and its own problem's target.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from contrastive_reasoning.critics.base import NONE, CriticBatch, Pairing
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.tasks.countdown.game import MAX_RESULT
from contrastive_reasoning.tasks.countdown.states import Known, State, encode_state

NOTHING = Known(frozenset(), exhausted=False)


class ReplayedState(NamedTuple):
    state: State
    targets: tuple[int, ...]
    """The targets of the problems in which the state was visited, the latest last."""
    known: Known


class ReplayBuffer:
    """At most ``capacity`` states. Raises ValueError: ``capacity`` is below 1."""

    def __init__(self, *, capacity: int) -> None:
        at_least(1, capacity=capacity)
        self.capacity = capacity
        self._states: dict[State, ReplayedState] = {}
        """Oldest first."""

    def __len__(self) -> int:
        return len(self._states)

    def add(self, state: State, targets: Iterable[int], known: Known) -> None:
        """Stores a state as the newest; a state that is already in the buffer keeps its known values and targets."""
        before = self._states.pop(state, ReplayedState(state, (), NOTHING))
        # a dict keeps the first of equal keys, and the last visit of a target must count: hence reversed
        newest_first = dict.fromkeys(reversed([*before.targets, *targets]))
        self._states[state] = ReplayedState(state, tuple(reversed(newest_first)), known.merge(before.known))
        if len(self._states) > self.capacity:
            del self._states[next(iter(self._states))]

    def draw(self, count: int, rng: np.random.Generator) -> list[ReplayedState]:
        """Draws ``count`` states uniformly, repeats allowed. Raises ValueError: the buffer is empty."""
        if not self._states:
            raise ValueError("the replay buffer is empty: no states were added yet")
        states = list(self._states.values())
        return [states[place] for place in rng.integers(0, len(states), count)]

    def state_dict(self) -> dict[str, Tensor]:
        """Returns tensors: (N, 6) states, (N,) exhausted, targets and reached values with their counts per state."""
        states = list(self._states.values())
        reached = [sorted(each.known.reached) for each in states]
        return {
            "states": torch.tensor([encode_state(each.state) for each in states], dtype=torch.long),
            "target_counts": torch.tensor([len(each.targets) for each in states], dtype=torch.long),
            "targets": torch.tensor([target for each in states for target in each.targets], dtype=torch.long),
            "exhausted": torch.tensor([each.known.exhausted for each in states], dtype=torch.bool),
            "counts": torch.tensor([len(values) for values in reached], dtype=torch.long),
            "reached": torch.tensor([value for values in reached for value in values], dtype=torch.long),
        }

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        """Restores the output of ``state_dict``, in the same order."""
        values, targets = iter(state["reached"].tolist()), iter(state["targets"].tolist())
        columns = [state[name].tolist() for name in ("states", "exhausted", "target_counts", "counts")]
        self._states = {}
        for row, exhausted, target_count, count in zip(*columns, strict=True):
            numbers, own = tuple(number for number in row if number >= 0), tuple(islice(targets, target_count))
            self._states[numbers] = ReplayedState(numbers, own, Known(frozenset(islice(values, count)), exhausted))


def replay_batch(
    states: list[ReplayedState], *, pairing: Pairing, goal_range: tuple[int, int], rng: np.random.Generator
) -> CriticBatch:
    """Builds a batch of A anchors: ``state_actions`` (A, 6), ``goals`` (C,).

    An anchor is paired with the target of its latest visit. An unsuccessful rollout proves nothing about the state's
    targets: if a target was neither reached nor excluded, the pair is not a candidate.

    ``rng`` draws the hindsight goal of each anchor from the values within ``goal_range`` that were reached from it.
    """
    reached, own = np.zeros((len(states), MAX_RESULT), dtype=bool), np.zeros((len(states), MAX_RESULT), dtype=bool)
    for row, each in enumerate(states):
        reached[row, list(each.known.reached)] = True
        own[row, list(each.targets)] = True
    exhausted = np.array([each.known.exhausted for each in states])
    pairs = pairing(
        np.array([_hindsight_goal(each.known, goal_range, rng) for each in states]),
        np.array([each.targets[-1] for each in states]),
        reached,
        exhausted,
    )
    # NONE (−1) as an index reads the last column, so such goals are excluded by the second term
    open_question = own[:, pairs.goals] & (pairs.goals != NONE) & ~reached[:, pairs.goals] & ~exhausted[:, None]
    return CriticBatch(
        state_actions=torch.tensor([encode_state(each.state) for each in states]),
        goals=torch.from_numpy(pairs.goals),
        positive=torch.from_numpy(pairs.positive),
        candidate=torch.from_numpy(pairs.candidate & ~open_question),
    )


def _hindsight_goal(known: Known, goal_range: tuple[int, int], rng: np.random.Generator) -> int:
    low, high = goal_range
    values = [value for value in sorted(known.reached) if low <= value <= high]
    return values[rng.integers(len(values))] if values else NONE
