"""The fixed held-out states on which every critic is evaluated, with exact reachability, for every training range.

There are ``PROBLEMS`` solvable problems of LongProc's own ranges (4 numbers 1–49, targets 10–50), all of the test
split. Each has ``SIBLINGS`` different first moves, and one random second move after each of them, which give the states
at depth 1 and 2. Siblings are states of the same problem and depth; a reward has to rank them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Float
from numpy import ndarray
from torch.utils.data import DataLoader

from contrastive_reasoning.critics.base import CriticBatch, CriticOracleBatch
from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown.game import Move, legal_moves
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace, draw_distinct
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.states import encode_state
from datamodules.random_play import play_chances

PROBLEMS = 800
SIBLINGS = 4
SEED = 0
"""Seed of the held-out states only, which are the same in every run."""
SPACE = ProblemSpace(counts=[4], number_range=[1, 49], target_range=[10, 50], max_search_lines=None)


class OracleState(NamedTuple):
    """A state of problem number ``problem``, and whether its target can still be reached."""

    problem: int
    numbers: tuple[int, ...]
    target: int
    moves: tuple[Move, ...]
    """The moves from the start to the state: one or two."""
    label: bool

    @property
    def state(self) -> tuple[int, ...]:
        return self.moves[-1].state


@lru_cache(maxsize=1)
def oracle_states() -> tuple[OracleState, ...]:
    """All held-out states: for each problem its siblings at depth 1, then those at depth 2."""
    states = []
    pairs = islice(draw_distinct(SPACE, seed=SEED, split="test", exclude=()), PROBLEMS)
    for index, (numbers, target) in enumerate(pairs):
        rng = random.Random(f"oracle states/{SEED}/{index}")
        first = rng.sample(legal_moves(numbers), SIBLINGS)
        lines = [(move,) for move in first] + [(move, rng.choice(legal_moves(move.state))) for move in first]
        states += [OracleState(index, numbers, target, line, reachable(line[-1].state, target)) for line in lines]
    return tuple(states)


def held_out_states(task: Task) -> set[tuple[int, ...]]:
    """Sorted numbers of the evaluated states: starts of validation, test and oracle problems, and the oracle states.

    If the oracle states were not held out, training would reach most of them from other starts: of 3,200 states at
    depth 1, 72% in 1,000 batches of 512.
    """
    judged = [problem.fields["numbers"] for split in ("validation", "test") for problem in task.problems(split)]
    ours = [numbers for state in oracle_states() for numbers in (state.numbers, state.state)]
    return {tuple(sorted(numbers)) for numbers in (*judged, *ours)}


Encoding = Callable[[list[OracleState]], tuple[Any, Any]]
"""Maps states to ``(state_actions, goals)`` in the input form of a critic."""
ValidationLoaders = list[DataLoader[CriticBatch] | DataLoader[CriticOracleBatch]]


def target_form(states: list[OracleState]) -> tuple[Any, Any]:
    """The input of V2 and the joint critic: (N, 6) states and (N,) targets."""
    rows = [encode_state(state.state) for state in states]
    return torch.tensor(rows), torch.tensor([state.target for state in states])


def array_form(states: list[OracleState]) -> tuple[Any, Any]:
    """The input of V1: (N, 2, 6) start and state, and (N, 6) arrays that hold only the target."""
    rows = [[encode_state(state.numbers), encode_state(state.state)] for state in states]
    return torch.tensor(rows), torch.tensor([encode_state([state.target]) for state in states])


def oracle_batches(encoding: Encoding, *, batch_size: int, problems: int = PROBLEMS) -> list[CriticOracleBatch]:
    """The held-out states of the first ``problems`` problems, fewer for slow critics, in batches of ``batch_size``."""
    states = oracle_states()[: problems * 2 * SIBLINGS]
    chances = torch.from_numpy(chances_of(states)).float()
    batches = []
    for start in range(0, len(states), batch_size):
        some = list(states[start : start + batch_size])
        state_actions, goals = encoding(some)
        batches.append(
            CriticOracleBatch(
                state_actions=state_actions,
                goals=goals,
                label=torch.tensor([state.label for state in some]),
                chance=chances[start : start + batch_size],
                depth=torch.tensor([len(state.moves) for state in some]),
                problem=torch.tensor([state.problem for state in some]),
            )
        )
    return batches


def chances_of(states: Sequence[OracleState]) -> Float[ndarray, " N"]:
    """The probability of each state that random play from it ends on its target."""
    chances = np.zeros(len(states))
    for left in {len(state.state) for state in states}:
        rows = [row for row, state in enumerate(states) if len(state.state) == left]
        boards, targets = ([states[row].state for row in rows], [states[row].target for row in rows])
        chances[rows] = play_chances(np.array(boards), np.array(targets))
    return chances


def validation_loaders(
    batches: list[CriticBatch], encoding: Encoding, *, batch_size: int, problems: int = PROBLEMS
) -> ValidationLoaders:
    """Loaders of the fixed batches for contrastive metrics and of the held-out states; see :func:`oracle_batches`."""
    oracle = oracle_batches(encoding, batch_size=batch_size, problems=problems)
    return [DataLoader(batches, batch_size=None), DataLoader(oracle, batch_size=None)]  # pyright: ignore
