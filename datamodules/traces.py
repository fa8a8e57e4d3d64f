"""The published study's search traces as critic data, in its three forms: V1 and V2 as integers, and text.

Integers: each distinct training problem is solved once, and T triples are drawn from its search. 100,000 trajectories
× 20 triples are the poster's 2,000,000 examples. The searches run in worker processes; their order does not depend on
the number of processes.

Text: a trace up to and including a line against a later line. ``state_actions`` is the prefix with its line, ``goals``
is the later line, both in the form that the critic's ``tokenize`` returns. Trajectories are drawn and written on
demand, because 100,000 of them would be gigabytes of text.
"""

from __future__ import annotations

import random
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from itertools import islice
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Int
from numpy import ndarray
from torch import Tensor
from torch.utils.data import DataLoader

from contrastive_reasoning.critics.base import CriticBatch
from contrastive_reasoning.progress import phase_of
from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace, draw, draw_distinct
from contrastive_reasoning.tasks.countdown.problem import problem_key
from contrastive_reasoning.tasks.countdown.search import SearchTree, search
from contrastive_reasoning.tasks.countdown.states import PADDING, WIDTH
from contrastive_reasoning.tasks.countdown.task import CountdownTask
from contrastive_reasoning.tasks.countdown.trace import path_text, search_trace
from contrastive_reasoning.tasks.countdown.triples import TextTriple, array_row, number_lists, target_row, text_triple
from datamodules.batch_stream import BatchData, BatchStream, Reader, leave_signals_to_parent, reader_of, unchanged
from datamodules.oracle_states import (
    Encoding,
    OracleState,
    ValidationLoaders,
    array_form,
    held_out_states,
    target_form,
    validation_loaders,
)

DrawRow = Callable[[SearchTree, random.Random], Sequence[int] | None]
"""Draws one triple of a trajectory as a row of integers; None if the trajectory has none."""
REDRAWS = 100
"""Maximum number of draws per triple. A trajectory that needs more is skipped: it visits too few allowed states."""
CHUNK = 64
"""Number of trajectories that a worker processes at once."""


def reserved_keys(task: CountdownTask) -> frozenset[str]:
    """Keys of problems that no trajectory may solve: validation and test problems, and those never generated."""
    judged = [problem.key for split in ("validation", "test") for problem in task.problems(split)]
    return task.reserved_keys() | frozenset(judged)


def diagonal_batch(state_actions: Any, goals: Any, same_goal: Bool[Tensor, "A A"] | None, *, size: int) -> CriticBatch:
    """A batch of A = ``size`` anchors, each with its row's goal as positive; ``same_goal`` pairs are no negatives."""
    positive = torch.eye(size, dtype=torch.bool)
    candidate = torch.ones_like(positive) if same_goal is None else positive | ~same_goal
    return CriticBatch(state_actions=state_actions, goals=goals, positive=positive, candidate=candidate)


@dataclass(kw_only=True, eq=False, repr=False)
class TraceArrays(BatchData[CriticBatch]):
    """Batches of A = ``batch_size`` triples from different trajectories; the diagonal is positive.

    With ``mask_same_goal``, pairs with equal goals are not negatives.
    """

    oracle_form: ClassVar[Encoding]

    task: CountdownTask
    """The keys of its validation and test problems never occur in the trajectories. Their initial states, and the fixed
    oracle states, never occur in a triple, for any target.
    """
    space: ProblemSpace
    """The distribution of the trajectories' problems, restricted to the training split."""
    trajectories: int
    """Number of trajectories, all of different problems; the first ``validation_batches · batch_size`` are used for
    validation."""
    triples_each: int
    mask_same_goal: bool
    batch_size: int
    oracle_batch_size: int
    search_workers: int
    """Number of processes that build the table, once."""
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.held_back = self.validation_batches * self.batch_size
        """Trajectories for validation."""
        if self.trajectories < self.held_back + self.batch_size:
            raise ValueError(
                f"trajectories must be at least {self.held_back + self.batch_size}, a training batch of "
                f"{self.batch_size} after {self.validation_batches} for validation, got {self.trajectories}"
            )
        self.table: Int[ndarray, "N T W"] | None = None

    @property
    @abstractmethod
    def draw_row(self) -> DrawRow:
        """Draws the rows of the table. It can be sent to worker processes."""

    @abstractmethod
    def encode(self, rows: Int[Tensor, "A W"]) -> tuple[Tensor, Tensor]:
        """Converts rows of the table to ``(state_actions, goals)``."""

    def setup(self, stage: str | None = None) -> None:
        """Searches all trajectories, once."""
        if self.table is None:
            with phase_of(self.trainer, "searching", unit="trajectories", total=self.trajectories) as phase:
                self.table = triple_table(
                    self.space,
                    trajectories=self.trajectories,
                    triples_each=self.triples_each,
                    seed=self.seed,
                    exclude=reserved_keys(self.task),
                    held_out=held_out_states(self.task),
                    draw_row=self.draw_row,
                    workers=self.search_workers,
                    progress=phase.move,
                )

    def batch(self, number: int, *, split: Split = "train") -> CriticBatch:
        """Batch ``number`` of the training or validation trajectories: a function of number and seed."""
        self.setup()
        assert self.table is not None
        table = self.table[self.held_back :] if split == "train" else self.table[: self.held_back]
        rows = torch.from_numpy(batch_rows(table, number, batch_size=self.batch_size, seed=self.seed))
        state_actions, goals = self.encode(rows)
        flat = goals.reshape(len(goals), -1)
        same = (flat[:, None] == flat[None]).all(dim=2) if self.mask_same_goal else None
        return diagonal_batch(state_actions, goals, same, size=len(rows))

    def count_drawn(self, batches: int) -> Mapping[str, int]:
        """Counts the different ``trajectories`` and ``triples`` in the first ``batches`` training batches."""
        return count_drawn(
            self.trajectories - self.held_back, self.triples_each, batches, batch_size=self.batch_size, seed=self.seed
        )

    def val_dataloader(self) -> ValidationLoaders:
        encoding = type(self).oracle_form  # through the class: an instance would bind the function as a method
        return validation_loaders(self.fixed_batches(), encoding, batch_size=self.oracle_batch_size)


class TracesV1(TraceArrays):
    """Start and a visited array against an array visited later: ``state_actions`` (A, 2, 6), ``goals`` (A, 6).

    Every goal is reachable from the start, so a critic can ignore the action at no cost. The study found this effect,
    and the action probe measures it.
    """

    oracle_form = array_form

    @property
    def draw_row(self) -> DrawRow:
        return array_row

    def encode(self, rows: Int[Tensor, "A 18"]) -> tuple[Int[Tensor, "A 2 6"], Int[Tensor, "A 6"]]:
        return rows[:, : 2 * WIDTH].reshape(-1, 2, WIDTH), rows[:, 2 * WIDTH :]


@dataclass(kw_only=True, eq=False, repr=False)
class TracesV2(TraceArrays):
    """A visited array against the problem's fixed target: ``state_actions`` (A, 6), ``goals`` (A,).

    The search also visits failed branches, so the target is unreachable from many positive states. A trace only shows
    that a state was visited on the way.
    """

    oracle_form = target_form

    numbers_left: Sequence[int]
    """Sizes of the states that are drawn. The paper's are [3, 2]: its arrays are [A;B;C] or [A;B]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        largest = max(self.space.counts)
        if not self.numbers_left or not all(1 <= size < largest for size in self.numbers_left):
            raise ValueError(f"numbers_left must be one or more of 1 to {largest - 1}, got {[*self.numbers_left]}")

    @property
    def draw_row(self) -> DrawRow:
        return partial(target_row, numbers_left=tuple(self.numbers_left))

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
    """Builds a table of T = ``triples_each`` rows from the search of each of N = ``trajectories`` training problems.

    Args:
        space: the distribution of the problems, which are distinct and of the training split.
        trajectories: N.
        triples_each: T.
        seed: draw i of a problem and its triples are functions of (seed, i).
        exclude: keys of problems that must not occur.
        held_out: sorted numbers of states that neither start a trajectory nor occur in a row, for any target.
        draw_row: draws a row; it can be sent to worker processes.
        workers: number of processes; 0 searches in this process.
        progress: called with the number of trajectories found so far.

    Raises:
        ValueError: if the space holds too few problems.
    """
    triples_of = partial(_triples_of, space, seed=seed, exclude=frozenset(exclude), held_out=frozenset(held_out))
    searches: DataLoader[list[tuple[str, ndarray]]] = DataLoader(
        BatchStream(partial(triples_of, draw_row=draw_row, triples_each=triples_each), first=0),
        batch_size=None,
        num_workers=workers,
        collate_fn=unchanged,
        worker_init_fn=leave_signals_to_parent,
        multiprocessing_context="spawn" if workers else None,  # safe although this process has threads
        generator=torch.Generator(),  # otherwise the loader draws its seed from the global generator
    )
    found: set[str] = set()
    table: Int[ndarray, "N T W"] | None = None
    for drawn in searches:
        before = len(found)
        for key, rows in drawn:
            if len(found) < trajectories and key not in found:
                if table is None:  # filled in place: 320,000 trajectories of V1 are 230 MB
                    table = np.empty((trajectories, *rows.shape), dtype=rows.dtype)
                table[len(found)] = rows
                found.add(key)
        if progress:
            progress(len(found))
        if len(found) in (before, trajectories):
            break
    if table is None or len(found) < trajectories:
        raise ValueError(f"{space} holds about {len(found)} training problems, {trajectories} are wanted")
    return table


def _triples_of(
    space: ProblemSpace,
    chunk: int,
    *,
    seed: int,
    exclude: Collection[str],
    held_out: frozenset[tuple[int, ...]],
    draw_row: DrawRow,
    triples_each: int,
) -> list[tuple[str, Int[ndarray, "T W"]]]:
    """The keys of the problems in a chunk of draws, each with T rows of its search; unusable ones are skipped."""
    drawn = []
    for index in range(chunk * CHUNK, (chunk + 1) * CHUNK):
        numbers, target = draw(space, seed=seed, split="train", index=index, exclude=exclude)
        if tuple(sorted(numbers)) in held_out:
            continue
        tree = search(numbers, target)
        rng = random.Random(f"triples/{seed}/{index}")
        rows = list(islice(_rows_of(tree, rng, draw_row, held_out, REDRAWS * triples_each), triples_each))
        if len(rows) == triples_each:
            drawn.append((problem_key(numbers, target), np.array(rows, dtype=np.int16)))
    return drawn


def _rows_of(
    tree: SearchTree, rng: random.Random, draw_row: DrawRow, held_out: frozenset[tuple[int, ...]], tries: int
) -> Iterator[Sequence[int]]:
    """Yields the rows of up to ``tries`` draws that contain no held-out state; none if the search has no triple."""
    for _ in range(tries):
        row = draw_row(tree, rng)
        if row is None:
            return
        if not held_out.intersection(states_of(row)):
            yield row


def states_of(row: Sequence[int]) -> list[tuple[int, ...]]:
    """The sorted numbers of each state in a row. States are whole arrays of ``WIDTH``; a single target is not one."""
    arrays = [row[k : k + WIDTH] for k in range(0, len(row) - WIDTH + 1, WIDTH)]
    return [tuple(sorted(number for number in array if number != PADDING)) for array in arrays]


def batch_rows(table: Int[ndarray, "N T W"], number: int, *, batch_size: int, seed: int) -> Int[ndarray, "A W"]:
    """Batch ``number``: A ≤ N rows from A different trajectories.

    Epoch e visits every trajectory at most once, in a random order of (seed, e), and takes triple e mod T of each.
    Trajectories that do not fill a last batch are left out of the epoch.
    """
    trajectories, triples_each, _ = table.shape
    epoch, place = divmod(number, trajectories // batch_size)
    order = order_of_epoch(trajectories, seed=seed, epoch=epoch)
    return table[order[place * batch_size : (place + 1) * batch_size], epoch % triples_each].astype(np.int64)


def count_drawn(trajectories: int, triples_each: int, batches: int, *, batch_size: int, seed: int) -> dict[str, int]:
    """Counts the different trajectories and triples that :func:`batch_rows` draws in its first ``batches``."""
    drawn = np.zeros((trajectories, triples_each), dtype=bool)
    of_an_epoch = trajectories // batch_size
    for epoch in range(-(-batches // of_an_epoch)):
        taken = min(batches - epoch * of_an_epoch, of_an_epoch) * batch_size
        drawn[order_of_epoch(trajectories, seed=seed, epoch=epoch)[:taken], epoch % triples_each] = True
    return {"trajectories": int(drawn.any(axis=1).sum()), "triples": int(drawn.sum())}


@lru_cache(maxsize=4)
def order_of_epoch(trajectories: int, *, seed: int, epoch: int) -> Int[ndarray, " N"]:
    """A permutation that depends on (seed, epoch), cached for the epoch: it takes longer than a batch of 16."""
    order = np.random.default_rng([seed, epoch]).permutation(trajectories)
    order.flags.writeable = False
    return order


@runtime_checkable
class TextReader(Reader, Protocol):
    """A reader that also has the style in which it reads traces, and the text template of a target as a goal."""

    style: str
    goal_text: str


@dataclass(kw_only=True, eq=False, repr=False)
class TracesText(BatchData[CriticBatch]):
    """Batches of A = ``batch_size`` text triples from different trajectories, as in :class:`TraceArrays`."""

    task: CountdownTask
    """The keys of its validation and test problems never occur in the trajectories. Their initial states, and the fixed
    oracle states, never begin a trajectory and never occur in an action or a goal, for any target.
    """
    space: ProblemSpace
    discount: float
    """γ for drawing the later line; with 1 every later line is equally likely."""
    mask_same_goal: bool
    batch_size: int
    oracle_problems: int
    """Number of fixed held-out problems for evaluating the critic; reading text is slow."""
    oracle_batch_size: int
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        self.reader: TextReader | None = None

    def setup(self, stage: str | None = None) -> None:
        """Takes tokenizer and style from the trainer's critic; raises a ValueError if it does not read text."""
        if self.reader is None and self.trainer is not None:
            self.reader = reader_of(self.trainer, needed_by="datamodule=traces_text")

    def triples(self, number: int, *, split: Split) -> list[TextTriple]:
        """The triples of batch ``number``: a function of number, split and seed."""
        train = split == "train"
        exclude, held_out = (self._reserved, self._held_out) if train else (frozenset(), frozenset())
        problems = draw_distinct(self.space, seed=(self.seed << 40) + number, split=split, exclude=exclude)
        rng = random.Random(f"{self.seed}/text triples/{split}/{number}")
        fresh = (pair for pair in problems if tuple(sorted(pair[0])) not in held_out)
        drawn = (self._triple(*pair, held_out=held_out, rng=rng) for pair in fresh)
        return list(islice((triple for triple in drawn if triple is not None), self.batch_size))

    def _triple(
        self, numbers: tuple[int, ...], target: int, *, held_out: frozenset[tuple[int, ...]], rng: random.Random
    ) -> TextTriple | None:
        """Draws a triple of the problem's trace without held-out states; None if none is found."""
        style = self._critic().style
        trace = search_trace(numbers, target, style=style).text
        tries = (text_triple(trace, style=style, discount=self.discount, rng=rng) for _ in range(REDRAWS))
        return next((triple for triple in tries if not shown_numbers(triple) & held_out), None)

    def batch(self, number: int, *, split: Split = "train") -> CriticBatch:
        """Batch ``number`` as tokens."""
        triples = self.triples(number, split=split)
        goals = [triple.goal for triple in triples]
        same = torch.tensor([[goal == other for other in goals] for goal in goals]) if self.mask_same_goal else None
        tokenize = self._critic().tokenize
        state_actions = tokenize([triple.state + triple.action for triple in triples])
        return diagonal_batch(state_actions, tokenize(goals), same, size=len(triples))

    def val_dataloader(self) -> ValidationLoaders:
        size, problems = self.oracle_batch_size, self.oracle_problems
        return validation_loaders(self.fixed_batches(), self._oracle_form, batch_size=size, problems=problems)

    def _oracle_form(self, states: list[OracleState]) -> tuple[Any, Any]:
        critic = self._critic()
        texts = [path_text(state.numbers, state.target, state.moves, style=critic.style) for state in states]
        goals = [critic.goal_text.replace("{target}", str(state.target)) for state in states]
        return critic.tokenize(texts), critic.tokenize(goals)

    def _critic(self) -> TextReader:
        if self.reader is None:
            raise ValueError("text traces have no tokenizer before a trainer with a text critic has set them up")
        return self.reader

    @cached_property
    def _reserved(self) -> frozenset[str]:
        return reserved_keys(self.task)

    @cached_property
    def _held_out(self) -> frozenset[tuple[int, ...]]:
        return frozenset(held_out_states(self.task))


def shown_numbers(triple: TextTriple) -> set[tuple[int, ...]]:
    """The sorted numbers of the states written in the action and the goal."""
    return {*number_lists(triple.action), *number_lists(triple.goal)}
