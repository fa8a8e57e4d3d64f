"""Search traces as one table of triples: distinct training problems, each solved once, T triples drawn from each.

100,000 trajectories × 20 triples are the poster's 2,000,000 examples. The rows of a table are integers, in whatever
form the critic reads; the searches run in worker processes and their order does not depend on how many there are.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Sequence
from functools import lru_cache, partial
from itertools import count, islice
from typing import NamedTuple

import numpy as np
from jaxtyping import Int
from numpy import ndarray

from contrastive_reasoning.tasks.countdown.encoding import PADDING, WIDTH
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace, draw
from contrastive_reasoning.tasks.countdown.problem import problem_key
from contrastive_reasoning.tasks.countdown.search import SearchTree, search
from contrastive_reasoning.tasks.countdown.stream import Progress, chunks, ordered_map

DrawRow = Callable[[SearchTree, random.Random], Sequence[int]]
"""One triple of a trajectory as a row of integers."""
REDRAWS = 100
"""Draws for each row of a trajectory before it is given up: its search visited hardly anything that may be shown."""
CHUNK = 64
"""Trajectories handed to a worker at once."""


class Trajectory(NamedTuple):
    key: str
    """Of its problem."""
    rows: Int[ndarray, "T W"]


def triple_table(
    space: ProblemSpace,
    *,
    trajectories: int,
    triples_each: int,
    seed: int,
    exclude: Collection[str],
    held_out: Collection[tuple[int, ...]],
    draw_row: DrawRow,
    workers: int,
    progress: Progress | None = None,
) -> Int[ndarray, "N T W"]:
    """N = ``trajectories`` distinct problems of the training split, T = ``triples_each`` rows from the search of each.

    Args:
        space: what problems are drawn from.
        trajectories: N.
        triples_each: T.
        seed: draw i of a problem and its triples are functions of (seed, i).
        exclude: keys of problems that must not occur.
        held_out: sorted numbers of states that neither start a trajectory nor stand in a row, whatever the target.
        draw_row: a module-level function, so that workers can be sent it.
        workers: processes; 0 searches in this one.
        progress: called with the number of trajectories found so far.

    Raises:
        ValueError: if the space holds too few problems.
    """
    work = partial(
        _search,
        space,
        triples_each=triples_each,
        seed=seed,
        exclude=frozenset(exclude),
        held_out=frozenset(held_out),
        draw_row=draw_row,
    )
    found: dict[str, Int[ndarray, "T W"]] = {}
    for drawn in ordered_map(work, chunks(count(), CHUNK), workers=workers):
        before = len(found)
        for trajectory in drawn:
            if len(found) < trajectories:
                found.setdefault(trajectory.key, trajectory.rows)
        if progress:
            progress(len(found))
        if len(found) == trajectories:
            return np.stack(list(found.values()))
        if len(found) == before:
            raise ValueError(f"{space} holds about {before} training problems, {trajectories} are wanted")
    raise AssertionError("the indices never end")


def _search(
    space: ProblemSpace,
    indices: Sequence[int],
    *,
    triples_each: int,
    seed: int,
    exclude: Collection[str],
    held_out: frozenset[tuple[int, ...]],
    draw_row: DrawRow,
) -> list[Trajectory]:
    drawn = []
    for index in indices:
        numbers, target = draw(space, seed=seed, split="train", index=index, exclude=exclude)
        if tuple(sorted(numbers)) in held_out:
            continue
        tree = search(numbers, target)
        if len(tree.states) > 2:  # a target reached by the only move visited leaves no triple to draw
            rng = random.Random(f"triples/{seed}/{index}")
            tries = (draw_row(tree, rng) for _ in range(REDRAWS * triples_each))
            rows = list(islice((row for row in tries if not held_out.intersection(states_of(row))), triples_each))
            if len(rows) == triples_each:
                drawn.append(Trajectory(problem_key(numbers, target), np.array(rows, dtype=np.int16)))
    return drawn


def states_of(row: Sequence[int]) -> list[tuple[int, ...]]:
    """The sorted numbers of each state that stands in a row: whole arrays of ``WIDTH``, a lone target is none."""
    arrays = [row[k : k + WIDTH] for k in range(0, len(row) - WIDTH + 1, WIDTH)]
    return [tuple(sorted(number for number in array if number != PADDING)) for array in arrays]


def batch_rows(table: Int[ndarray, "N T W"], number: int, *, batch_size: int, seed: int) -> Int[ndarray, "A W"]:
    """Batch ``number``: A rows from A different trajectories.

    Epoch e walks through all trajectories once, in an order drawn from (seed, e), and takes triple e mod T of each; the
    trajectories that do not fill a last batch sit the epoch out.

    Raises:
        ValueError: if there are fewer trajectories than ``batch_size``.
    """
    trajectories, triples_each, _ = table.shape
    if batch_size > trajectories:
        raise ValueError(f"a batch of {batch_size} different trajectories cannot come from {trajectories}")
    epoch, place = divmod(number, trajectories // batch_size)
    order = order_of_epoch(trajectories, seed=seed, epoch=epoch)
    return table[order[place * batch_size : (place + 1) * batch_size], epoch % triples_each].astype(np.int64)


@lru_cache(maxsize=4)
def order_of_epoch(trajectories: int, *, seed: int, epoch: int) -> Int[ndarray, " N"]:
    """A permutation of (seed, epoch), remembered for the epoch's other batches: it takes longer than a batch of 16."""
    order = np.random.default_rng([seed, epoch]).permutation(trajectories)
    order.flags.writeable = False
    return order
