"""Random legal plays of Countdown as examples: for a random target, for the value that they reach, or as searches.

A policy that only sees plays that hit their target learns to write the target last, true or not. The first plays are
therefore unaimed: only arithmetic determines their last number. No held-out problem occurs in a prompt, because a play
is redrawn if its problem belongs to another split. An unaimed play can happen to reach the target of a held-out
problem. Its moves then appear under another target, which they miss.

This applies to the style ``direct``. In the search styles the completion is always the written search for the value
that a play reached: a search includes failed attempts and states the result of each line.

``Plays`` writes searches in LongProc's order. A policy trained on them has no choice of order; a policy trained on
``ShuffledSearches``, whose order is random, writes any order.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.countdown.game import Move, legal_moves
from contrastive_reasoning.tasks.countdown.problem import CountdownProblem
from contrastive_reasoning.tasks.countdown.task import CountdownTask
from contrastive_reasoning.tasks.countdown.trace import search_trace, shuffled_trace
from datamodules.batch_stream import BatchData, Example


def random_play(
    numbers: Sequence[int], moves: Callable[[tuple[int, ...]], Sequence[Move]], rng: random.Random
) -> tuple[str, int]:
    """Draws moves uniformly from ``moves`` until one number is left; returns them joined by ``;``, and that number."""
    state: tuple[int, ...] = tuple(numbers)
    equations: list[str] = []
    for _ in numbers[1:]:
        move = rng.choice(moves(state))
        equations.append(move.equation)
        state = move.state
    return ";".join(equations), state[0]


def draw_problem(task: CountdownTask, split: Split, rng: random.Random, *, aimed: bool) -> tuple[CountdownProblem, str]:
    """Draws random numbers and plays random legal moves; returns a problem of ``split`` and the moves.

    The target is the value that the moves reach. In the style ``direct`` it is a random target of the range unless the
    play is ``aimed``. In a search style the problem is within the task's ``max_search_lines``.
    """
    direct = task.style == "direct"
    while True:
        numbers = tuple(rng.randint(*task.number_range) for _ in range(rng.choice(tuple(task.counts))))
        moves, reached = random_play(numbers, legal_moves, rng)
        target = reached if aimed or not direct else rng.randint(*task.target_range)
        if task.target_range[0] <= target <= task.target_range[1]:
            problem = task.problem(numbers, target)
            if task.split_of(problem) == split and (direct or task.space.admits(numbers, target)):
                return problem, moves


def draw_play(task: CountdownTask, split: Split, rng: random.Random, *, aimed: bool) -> Example:
    """Draws a problem of ``split`` and a completion in the task's style: random moves, or a search for their result."""
    problem, moves = draw_problem(task, split, rng, aimed=aimed)
    if task.style == "direct":
        return problem.prompt, moves
    return problem.prompt, search_trace(problem.numbers, problem.target, style=task.style).text


def draw_shuffled_search(task: CountdownTask, split: Split, rng: random.Random, *, max_lines: int) -> Example:
    """Draws a problem of ``split`` and a search in random order for the value that a random play reached.

    If the search has more than ``max_lines`` lines under the header, problem and search are redrawn. It is not
    truncated: completions are trained with their end token, so the policy would learn to stop before the target.
    Redrawing has a cost: short searches begin with a good move more often than chance, and the policy learns this bias
    as far as it can. With three numbers from 1 to 20, the first move keeps the target reachable in 30% of all searches,
    in 32% of those within 40 lines, 37% within 20 and 58% within 12. The bound should therefore be well above the
    length limit of completions. No search of three numbers has more than 64 lines.
    """
    while True:
        problem, _ = draw_problem(task, split, rng, aimed=True)
        text = shuffled_trace(problem.numbers, problem.target, style=task.style, rng=rng).text
        if text.partition("\n\n")[0].count("\n") <= max_lines:
            return problem.prompt, text


@dataclass(frozen=True, kw_only=True)
class PlayCorpus:
    """Texts for a tokenizer: prompts and completions of training plays."""

    task: CountdownTask
    plays: int
    seed: int

    def __call__(self) -> list[str]:
        rng = random.Random(f"{self.seed}/play corpus")
        return [text for _ in range(self.plays) for text in draw_play(self.task, "train", rng, aimed=True)]


@dataclass(kw_only=True, eq=False, repr=False)
class Plays(BatchData[list[Example]]):
    """Batches of plays. The first ``unaimed_steps`` training batches, counted from 0, contain unaimed plays."""

    task: CountdownTask
    batch_size: int
    unaimed_steps: int
    seed: int

    def batch(self, number: int, *, split: Split = "train") -> list[Example]:
        rng = random.Random(f"{self.seed}/plays/{split}/{number}")
        aimed = split != "train" or number >= self.unaimed_steps
        return [draw_play(self.task, split, rng, aimed=aimed) for _ in range(self.batch_size)]


@dataclass(kw_only=True, eq=False, repr=False)
class ShuffledSearches(BatchData[list[Example]]):
    """Batches of searches in random order."""

    task: CountdownTask
    batch_size: int
    max_lines: int
    seed: int

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.task.style == "direct":
            raise ValueError("shuffled searches need a style that writes the search, got task.style='direct'")
        shortest = 2 * min(self.task.counts) - 2
        if self.max_lines < shortest:
            raise ValueError(f"max_lines must be at least {shortest}, the shortest search, got {self.max_lines}")

    def batch(self, number: int, *, split: Split = "train") -> list[Example]:
        rng = random.Random(f"{self.seed}/shuffled searches/{split}/{number}")
        return [draw_shuffled_search(self.task, split, rng, max_lines=self.max_lines) for _ in range(self.batch_size)]
