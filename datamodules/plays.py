"""Random legal plays of Countdown as examples: for a target of chance, for the value they reached, or as searches.

A policy that only sees plays that hit their target learns to write the target last, true or not. So the first plays
are unaimed: their last number can be known by arithmetic alone. No held-out problem is ever posed, because a play whose
problem belongs to another split is drawn again. What an unaimed play happens to reach may be the target of one: then
its moves stand there under another target, which they miss.

That is for the style ``direct``. In the search styles the completion is the written search for the value that a play
reached, unaimed or not: a search tries before it succeeds and states what each line gives.

``Plays`` writes searches in LongProc's order. A policy trained on those has nothing to choose; one trained on
``ShuffledSearches``, whose order is drawn, writes any order.
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
from datamodules.batch_stream import Example, ExampleData


def random_play(
    numbers: Sequence[int], moves: Callable[[tuple[int, ...]], Sequence[Move]], rng: random.Random
) -> tuple[str, int]:
    """Moves drawn uniformly from what ``moves`` allows until one number is left: joined by ``;``, and that number."""
    state: tuple[int, ...] = tuple(numbers)
    equations: list[str] = []
    for _ in numbers[1:]:
        move = rng.choice(moves(state))
        equations.append(move.equation)
        state = move.state
    return ";".join(equations), state[0]


def draw_problem(task: CountdownTask, split: Split, rng: random.Random, *, aimed: bool) -> tuple[CountdownProblem, str]:
    """Random numbers, and random legal moves to the end; a problem of ``split`` whose target they reach.

    In the style ``direct`` the target is any of the range unless the play is ``aimed``. In a search style the problem
    is within the task's ``max_search_lines``.
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
    """A problem of ``split`` and a completion in the task's style: random moves, or the search for what they reach."""
    problem, moves = draw_problem(task, split, rng, aimed=aimed)
    if task.style == "direct":
        return problem.prompt, moves
    return problem.prompt, search_trace(problem.numbers, problem.target, style=task.style).text


def draw_shuffled_search(task: CountdownTask, split: Split, rng: random.Random, *, max_lines: int) -> Example:
    """A problem of ``split`` and a search in a drawn order for the value that a random play reached.

    A search of more than ``max_lines`` under the header is drawn again, problem and all. It is not cut: a completion is
    taught with its end token, so a cut one would teach to stop before the target. Drawing again has its price: short
    searches begin well more often than chance, and the policy takes over what of that it can see. With three numbers, 1
    to 20, a drawn first move keeps the target in reach in 30% of all searches, in 32% of those within 40 lines, 37%
    within 20 and 58% within 12. So the bound belongs well above the cap of completions; no search of three numbers has
    more than 64 lines.
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
class Plays(ExampleData):
    """Batches of plays; the first ``unaimed_steps`` of training, counted from 0, hold unaimed ones."""

    task: CountdownTask
    batch_size: int
    unaimed_steps: int
    seed: int

    def batch(self, number: int, *, split: Split = "train") -> list[Example]:
        rng = random.Random(f"{self.seed}/plays/{split}/{number}")
        aimed = split != "train" or number >= self.unaimed_steps
        return [draw_play(self.task, split, rng, aimed=aimed) for _ in range(self.batch_size)]


@dataclass(kw_only=True, eq=False, repr=False)
class ShuffledSearches(ExampleData):
    """Batches of searches in a drawn order."""

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
