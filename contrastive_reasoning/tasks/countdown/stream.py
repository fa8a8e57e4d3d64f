"""Traces drawn and written in worker processes, in an order that no number of workers changes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from functools import partial
from itertools import count, islice
from multiprocessing import get_context
from typing import NamedTuple, TypeVar

from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.countdown.generator import Pair, ProblemSpace, draw
from contrastive_reasoning.tasks.countdown.problem import problem_key
from contrastive_reasoning.tasks.countdown.trace import Trace, search_trace

T = TypeVar("T")
R = TypeVar("R")
Progress = Callable[[int], None]
"""Called with how many traces are done, after each chunk."""


class ProblemTrace(NamedTuple):
    numbers: tuple[int, ...]
    target: int
    trace: Trace


def stream_traces(
    problems: Iterable[Pair],
    *,
    style: str,
    workers: int,
    chunk_size: int = 256,
    progress: Progress | None = None,
) -> Iterator[ProblemTrace]:
    """The traces of the problems, in their order.

    Args:
        problems: (numbers, target) each; read no further ahead than a few chunks per worker.
        style: as in ``search_trace``.
        workers: processes; 0 writes in this one.
        chunk_size: problems handed to a worker at once.
        progress: called with the number done so far.

    Raises:
        ValueError: at a problem that cannot be solved.
    """
    done = 0
    for traces in ordered_map(partial(_write, style=style), chunks(problems, chunk_size), workers=workers):
        yield from traces
        done += len(traces)
        if progress:
            progress(done)


def stream_generated(
    space: ProblemSpace,
    *,
    split: Split,
    total: int,
    seed: int,
    style: str,
    exclude: Collection[str],
    workers: int,
    chunk_size: int = 256,
    progress: Progress | None = None,
) -> Iterator[ProblemTrace]:
    """``total`` traces of distinct problems, those of ``generate_problems`` in its order; workers draw and write them.

    Raises:
        ValueError: if the space holds too few problems.
    """
    work = partial(_draw_and_write, space, seed=seed, split=split, exclude=frozenset(exclude), style=style)
    seen: set[str] = set()
    repeats = 0
    for traces in ordered_map(work, chunks(count(), chunk_size), workers=workers):
        for item in traces:
            key = problem_key(item.numbers, item.target)
            repeats = repeats + 1 if key in seen else 0
            if repeats >= 1000:
                raise ValueError(f"{space} holds only about {len(seen)} distinct {split} problems, {total} are wanted")
            if repeats or len(seen) == total:
                continue
            seen.add(key)
            yield item
        if progress:
            progress(len(seen))
        if len(seen) == total:
            return


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


def chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    items = iter(items)
    while chunk := list(islice(items, size)):
        yield chunk


def _write(problems: Sequence[Pair], *, style: str) -> list[ProblemTrace]:
    return [ProblemTrace(numbers, target, search_trace(numbers, target, style=style)) for numbers, target in problems]


def _draw_and_write(
    space: ProblemSpace, indices: Sequence[int], *, seed: int, split: Split, exclude: Collection[str], style: str
) -> list[ProblemTrace]:
    pairs = [draw(space, seed=seed, split=split, index=index, exclude=exclude) for index in indices]
    return _write(pairs, style=style)
