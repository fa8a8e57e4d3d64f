"""The two numeric forms of the published study's search traces, as one table of triples and batches of its rows.

Distinct training problems are solved once each, T triples are drawn from each: 100,000 trajectories × 20 triples are
the poster's 2,000,000 examples. The searches run in worker processes; their order does not depend on how many.
"""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import count, islice
from multiprocessing import get_context
from typing import ClassVar, TypeVar

import lightning as L
import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy import ndarray
from torch import Tensor
from torch.utils.data import DataLoader

from contrastive_reasoning.critics.base import CriticBatch, CriticOracleBatch
from contrastive_reasoning.progress import phase_of
from contrastive_reasoning.tasks.countdown.encoding import PADDING, WIDTH
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace, draw
from contrastive_reasoning.tasks.countdown.problem import problem_key
from contrastive_reasoning.tasks.countdown.search import SearchTree, search
from contrastive_reasoning.tasks.countdown.task import CountdownTask
from contrastive_reasoning.tasks.countdown.triples import array_row, target_row
from datamodules.batch_stream import training_loader
from datamodules.oracle_states import Encoding, array_form, held_out_states, oracle_batches, target_form

T = TypeVar("T")
R = TypeVar("R")
DrawRow = Callable[[SearchTree, random.Random], Sequence[int]]
"""One triple of a trajectory as a row of integers."""
REDRAWS = 100
"""Draws for each row of a trajectory before it is given up: its search visited hardly anything that may be shown."""
CHUNK = 64
"""Trajectories handed to a worker at once."""


@dataclass(kw_only=True, eq=False, repr=False)
class TraceArrays(L.LightningDataModule, ABC):
    """Batches of ``batch_size`` triples from different trajectories; the diagonal is positive."""

    draw_row: ClassVar[DrawRow]
    """One triple as integers."""
    oracle_form: ClassVar[Encoding]

    task: CountdownTask
    """The keys of its validation and test problems never occur in the trajectories. Their states at the start, and the
    fixed oracle states, never stand in a triple, whatever the target.
    """
    space: ProblemSpace
    """What the trajectories' problems are drawn from; only those of the training split are."""
    trajectories: int
    """How many, all different problems; the first ``validation_batches · batch_size`` validate."""
    triples_each: int
    """Drawn from one trajectory."""
    mask_same_goal: bool
    """Whether pairs whose goals are equal stop counting as negatives."""
    batch_size: int
    """A, the anchors of a batch."""
    validation_batches: int
    """For the contrastive metrics."""
    oracle_batch_size: int
    """Of the fixed held-out states."""
    search_workers: int
    """Processes that build the table, once."""
    workers: int
    """Loader processes."""
    seed: int
    """Of all draws."""

    def __post_init__(self) -> None:
        super().__init__()
        held_back = self.validation_batches * self.batch_size
        if self.trajectories < held_back + self.batch_size:
            raise ValueError(
                f"trajectories must be at least {held_back + self.batch_size}, a training batch of {self.batch_size} "
                f"after {self.validation_batches} for validation, got {self.trajectories}"
            )
        self.table: Int[ndarray, "N T W"] | None = None

    @abstractmethod
    def encode(self, rows: Int[Tensor, "A W"]) -> tuple[Tensor, Tensor]:
        """Rows of the table to ``(state_actions, goals)``."""

    def setup(self, stage: str | None = None) -> None:
        """Searches all trajectories, once."""
        if self.table is None:
            judged = {problem.key for split in ("validation", "test") for problem in self.task.problems(split)}
            with phase_of(self.trainer, "searching", unit="trajectories", total=self.trajectories) as phase:
                self.table = triple_table(
                    self.space,
                    trajectories=self.trajectories,
                    triples_each=self.triples_each,
                    seed=self.seed,
                    exclude=judged | self.task.reserved_keys(),
                    held_out=held_out_states(self.task),
                    draw_row=type(self).draw_row,
                    workers=self.search_workers,
                    progress=phase.move,
                )

    def batch(self, number: int, *, validation: bool = False) -> CriticBatch:
        """Batch ``number`` of the training or of the validation trajectories: a function of it and the seed."""
        self.setup()
        assert self.table is not None
        held_back = self.validation_batches * self.batch_size
        table = self.table[:held_back] if validation else self.table[held_back:]
        rows = torch.from_numpy(batch_rows(table, number, batch_size=self.batch_size, seed=self.seed))
        state_actions, goals = self.encode(rows)
        positive = torch.eye(len(rows), dtype=torch.bool)
        candidate = positive | ~same_goal(goals) if self.mask_same_goal else torch.ones_like(positive)
        return CriticBatch(state_actions=state_actions, goals=goals, positive=positive, candidate=candidate)

    def train_dataloader(self) -> DataLoader[CriticBatch]:
        return training_loader(self.batch, trainer=self.trainer, workers=self.workers)

    def val_dataloader(self) -> list[DataLoader[CriticBatch] | DataLoader[CriticOracleBatch]]:
        batches = [self.batch(number, validation=True) for number in range(self.validation_batches)]
        oracle = oracle_batches(type(self).oracle_form, batch_size=self.oracle_batch_size)
        return [DataLoader(batches, batch_size=None), DataLoader(oracle, batch_size=None)]  # pyright: ignore


class TracesV1(TraceArrays):
    """Start and a visited array against an array visited later: ``state_actions`` (A, 2, 6), ``goals`` (A, 6).

    Every goal is reachable from the start, so the action can be ignored at no cost: what the study found, and what the
    action probe measures.
    """

    draw_row = array_row
    oracle_form = array_form

    def encode(self, rows: Int[Tensor, "A 18"]) -> tuple[Int[Tensor, "A 2 6"], Int[Tensor, "A 6"]]:
        return rows[:, : 2 * WIDTH].reshape(-1, 2, WIDTH), rows[:, 2 * WIDTH :]


class TracesV2(TraceArrays):
    """A visited array against the problem's fixed target: ``state_actions`` (A, 6), ``goals`` (A,).

    The search visits failed branches too, so many positives are states from which the target is out of reach: a trace
    shows of a state that it was visited on the way, no more.
    """

    draw_row = target_row
    oracle_form = target_form

    def encode(self, rows: Int[Tensor, "A 7"]) -> tuple[Int[Tensor, "A 6"], Int[Tensor, " A"]]:
        return rows[:, :WIDTH], rows[:, WIDTH]


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
    progress: Callable[[int], None] | None = None,
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
    chunks = (range(first, first + CHUNK) for first in count(0, CHUNK))
    for drawn in ordered_map(work, chunks, workers=workers):
        before = len(found)
        for key, rows in drawn:
            if len(found) < trajectories:
                found.setdefault(key, rows)
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
) -> list[tuple[str, Int[ndarray, "T W"]]]:
    """The key of each problem drawn, and T rows of its search."""
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
                drawn.append((problem_key(numbers, target), np.array(rows, dtype=np.int16)))
    return drawn


def states_of(row: Sequence[int]) -> list[tuple[int, ...]]:
    """The sorted numbers of each state that stands in a row: whole arrays of ``WIDTH``, a lone target is none."""
    arrays = [row[k : k + WIDTH] for k in range(0, len(row) - WIDTH + 1, WIDTH)]
    return [tuple(sorted(number for number in array if number != PADDING)) for array in arrays]


def batch_rows(table: Int[ndarray, "N T W"], number: int, *, batch_size: int, seed: int) -> Int[ndarray, "A W"]:
    """Batch ``number``: A rows from A different trajectories.

    Epoch e walks through all trajectories once, in an order drawn from (seed, e), and takes triple e mod T of each; the
    trajectories that do not fill a last batch are left out of the epoch.

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


def same_goal(goals: Int[Tensor, "A ..."]) -> Bool[Tensor, "A A"]:
    """Whether two rows ask for the same: equal targets, or equal arrays."""
    flat = goals.reshape(len(goals), -1)
    return (flat[:, None] == flat[None]).all(dim=2)


def ordered_map(function: Callable[[T], R], items: Iterable[T], *, workers: int) -> Iterator[R]:
    """``map`` over processes: results in order, at most four items per worker in flight.

    Workers are started afresh (spawn), so threads of this process cannot harm them.

    Raises:
        ValueError: on a negative number of workers.
    """
    if workers < 0:
        raise ValueError(f"workers must be ≥ 0, got {workers}")
    if workers == 0:
        yield from map(function, items)
        return
    items = iter(items)
    pool = ProcessPoolExecutor(workers, mp_context=get_context("spawn"))
    pending: deque[Future[R]] = deque()
    try:
        pending.extend([pool.submit(function, item) for item in islice(items, 4 * workers)])
        while pending:
            result = pending.popleft().result()
            pending.extend([pool.submit(function, item) for item in islice(items, 1)])
            yield result
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
