"""Written searches in a drawn order, each for the value that a random play reached: what to try first stays open.

The sibling of plays.py for search styles, whose searches all go through pairs and operations in the same order. A
policy trained on those has nothing to choose; one trained on these writes any order.

A search longer than ``max_lines`` is drawn again, problem and all. It is not cut: a completion is taught with its end
token, so a cut one would teach to stop before the target. Drawing again has its price: short searches begin well more
often than chance, and the policy takes over what of that it can see. With three numbers, 1 to 20, a drawn first move
keeps the target in reach in 30% of all searches, in 32% of those within 40 lines, 37% within 20 and 58% within 12.
So the bound belongs well above the cap of completions; no search of three numbers has more than 64 lines.
"""

from __future__ import annotations

import random

from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.countdown import CountdownTask, legal_moves, shuffled_trace
from datamodules.examples import Example, ExampleData, ExampleStream

VERSION = 1


def draw_search(task: CountdownTask, split: Split, rng: random.Random, *, max_lines: int) -> Example:
    """A problem of ``split`` and a search for it in a drawn order.

    Args:
        task: its search style, and its ranges of numbers and targets.
        split: the split that the problem must fall into.
        rng: where every draw comes from.
        max_lines: the longest search, in lines under the header.
    """
    while True:
        numbers = tuple(rng.randint(*task.number_range) for _ in range(rng.choice(tuple(task.counts))))
        target = _value_reached(numbers, rng)
        if not task.target_range[0] <= target <= task.target_range[1]:
            continue
        problem = task.problem(numbers, target)
        if task.split_of(problem) != split or not task.space.admits(numbers, target):
            continue
        text = shuffled_trace(numbers, target, style=task.style, rng=rng).text
        if lines_written(text) <= max_lines:
            return problem.prompt, text


def lines_written(text: str) -> int:
    """Lines of a written search under its header."""
    return text.partition("\n\n")[0].count("\n")


def _value_reached(numbers: tuple[int, ...], rng: random.Random) -> int:
    """The last number of a random legal play."""
    state = numbers
    for _ in numbers[1:]:
        state = rng.choice(legal_moves(state)).state
    return state[0]


class ShuffledSearchStream(ExampleStream):
    """Batches first_step, first_step + 1, … without end; batch k is a function of (seed, split, k) alone."""

    def __init__(
        self, *, task: CountdownTask, split: Split, batch_size: int, max_lines: int, seed: int, first_step: int
    ) -> None:
        self.task = task
        self.split: Split = split
        self.batch_size = batch_size
        self.max_lines = max_lines
        self.seed = seed
        self.first_step = first_step

    def batch(self, step: int) -> list[Example]:
        rng = random.Random(f"{self.seed}/shuffled searches/{self.split}/{step}")
        return [draw_search(self.task, self.split, rng, max_lines=self.max_lines) for _ in range(self.batch_size)]


class ShuffledSearches(ExampleData):
    """Training searches without end and a few fixed validation batches of the validation split.

    Raises:
        ValueError: on a style that writes no search, or a bound under the shortest search.
    """

    def __init__(
        self,
        *,
        task: CountdownTask,
        batch_size: int,
        max_lines: int,
        validation_batches: int,
        workers: int,
        seed: int,
    ) -> None:
        super().__init__(validation_batches=validation_batches, workers=workers)
        if task.style == "direct":
            raise ValueError("shuffled searches need a style that writes the search, got task.style='direct'")
        shortest = 2 * min(task.counts) - 2
        if max_lines < shortest:
            raise ValueError(f"max_lines must be at least {shortest}, the shortest search, got {max_lines}")
        self.task = task
        self.batch_size = batch_size
        self.max_lines = max_lines
        self.seed = seed

    def stream(self, split: Split, *, first_step: int) -> ShuffledSearchStream:
        return ShuffledSearchStream(
            task=self.task,
            split=split,
            batch_size=self.batch_size,
            max_lines=self.max_lines,
            seed=self.seed,
            first_step=first_step,
        )
