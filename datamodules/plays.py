"""Random legal plays of Countdown: at first for a target of chance, then, by hindsight, for the value they reached.

A policy that only sees plays that hit their target learns to write the target last, true or not. So the first plays
are unaimed: their last number can be known by arithmetic alone. No held-out problem is ever posed, because a play whose
problem belongs to another split is drawn again. What an unaimed play happens to reach may be the target of one: then
its moves stand there under another target, which they miss.

That is for the style ``direct``. In the search styles the completion is the written search for the value that a play
reached, unaimed or not: a search tries before it succeeds and says what each line gives, so it is honest by itself.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.countdown.game import legal_moves
from contrastive_reasoning.tasks.countdown.task import CountdownTask
from contrastive_reasoning.tasks.countdown.trace import search_trace
from datamodules.examples import Example, ExampleData, ExampleStream

VERSION = 1
Play = Example
"""A problem and a play that answers it."""


def draw_play(task: CountdownTask, split: Split, rng: random.Random, *, aimed: bool) -> Play:
    """Random numbers and a completion in the task's style, for a problem of ``split``.

    ``direct`` completes with random legal moves to the end. A search style completes with the search for the value
    that such moves reach, if it is within the task's ``max_search_lines``; ``aimed`` changes nothing there.

    Args:
        task: its style and its ranges of numbers and targets.
        split: the split that the problem must fall into.
        rng: where every draw comes from.
        aimed: the target is the value reached; else any target of the range.
    """
    direct = task.style == "direct"
    while True:
        numbers = tuple(rng.randint(*task.number_range) for _ in range(rng.choice(tuple(task.counts))))
        moves, reached = _random_moves(numbers, rng)
        target = reached if aimed or not direct else rng.randint(*task.target_range)
        if not task.target_range[0] <= target <= task.target_range[1]:
            continue
        problem = task.problem(numbers, target)
        if task.split_of(problem) == split and (direct or task.space.admits(numbers, target)):
            return problem.prompt, moves if direct else search_trace(numbers, target, style=task.style).text


def _random_moves(numbers: tuple[int, ...], rng: random.Random) -> tuple[str, int]:
    """Legal moves to the end joined by ``;``, and the number they reach."""
    state = numbers
    equations: list[str] = []
    for _ in numbers[1:]:
        move = rng.choice(legal_moves(state))
        equations.append(move.equation)
        state = move.state
    return ";".join(equations), state[0]


@dataclass(frozen=True, kw_only=True)
class PlayCorpus:
    """Texts for a tokenizer: prompts and completions of training plays."""

    task: CountdownTask
    plays: int
    seed: int

    def __call__(self) -> list[str]:
        rng = random.Random(f"{self.seed}/play corpus")
        return [text for _ in range(self.plays) for text in draw_play(self.task, "train", rng, aimed=True)]


class PlayStream(ExampleStream):
    """Batches first_step, first_step + 1, … without end; batch k is a function of (seed, split, k) alone.

    The first ``unaimed_steps`` batches, counted from 0, hold unaimed plays.
    """

    def __init__(
        self, *, task: CountdownTask, split: Split, batch_size: int, unaimed_steps: int, seed: int, first_step: int
    ) -> None:
        self.task = task
        self.split: Split = split
        self.batch_size = batch_size
        self.unaimed_steps = unaimed_steps
        self.seed = seed
        self.first_step = first_step

    def batch(self, step: int) -> list[Play]:
        rng = random.Random(f"{self.seed}/plays/{self.split}/{step}")
        aimed = step >= self.unaimed_steps
        return [draw_play(self.task, self.split, rng, aimed=aimed) for _ in range(self.batch_size)]


class Plays(ExampleData):
    """Training plays without end and a few fixed validation batches of the validation split."""

    def __init__(
        self,
        *,
        task: CountdownTask,
        batch_size: int,
        unaimed_steps: int,
        validation_batches: int,
        workers: int,
        seed: int,
    ) -> None:
        super().__init__(validation_batches=validation_batches, workers=workers)
        self.task = task
        self.batch_size = batch_size
        self.unaimed_steps = unaimed_steps
        self.seed = seed

    def stream(self, split: Split, *, first_step: int) -> PlayStream:
        return PlayStream(
            task=self.task,
            split=split,
            batch_size=self.batch_size,
            unaimed_steps=self.unaimed_steps if split == "train" else 0,
            seed=self.seed,
            first_step=first_step,
        )
