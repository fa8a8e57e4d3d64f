"""Countdown's problems as tasks of verifiers, with two rewards: success, and the steps that keep the target reachable.

Replies are data: equations are read by a bounded grammar, and nothing in them is executed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import verifiers.v1 as vf

from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.countdown import CountdownProblem, CountdownTask, best_moves, parse_steps, reachable
from contrastive_reasoning.tasks.countdown.verifier import CLOSE, MAX_BLOCK, OPEN, solution_span, verify

PROMPT = """\
Combine the numbers {numbers} with +, -, * and / so that the last result is {target}. Use every number exactly once. \
Each step takes two of the numbers left and puts their result in their place. Results are whole numbers from 0 to 1999.
Think step by step. Then write one equation per line, such as 3 + 4 = 7, between {open} and {close}."""


class CountdownData(vf.TaskData):
    """One problem."""

    numbers: tuple[int, ...]
    target: int
    answer: str
    """A solution in the form that the prompt asks for."""


class CountdownReply(vf.Task[CountdownData]):
    """A problem with the rewards of a reply. Their weights: ``--env.taskset.task.rewards.reachable.weight 0.5``."""

    @vf.reward(weight=1.0)
    async def success(self, trace: vf.Trace) -> float:
        """Whether the last solution reaches the target by legal steps: 1 or 0."""
        problem = CountdownProblem(self.data.numbers, self.data.target, prompt="")
        return float(verify(problem, trace.last_reply).correct)

    @vf.reward(weight=0.2)
    async def reachable(self, trace: vf.Trace) -> float:
        """The share of steps in the last solution after which the target is still reachable, by the exact oracle."""
        return reachable_share(self.data.numbers, self.data.target, trace.last_reply)


def reachable_share(numbers: Sequence[int], target: int, reply: str) -> float:
    """The number of legal steps after which the target is reachable, over all steps written, and at least n − 1.

    A solution that stops early therefore does not get the whole share. Without a solution the share is 0. A problem has
    n ≥ 2 numbers.
    """
    start, end = solution_span(reply) or (0, 0)
    moves = CountdownProblem(numbers, target, style="direct", prompt="")
    steps = parse_steps(moves, reply[start : min(end, start + MAX_BLOCK)])
    kept = sum(step.legal and reachable(step.state, target) for step in steps)
    return kept / max(len(steps), len(numbers) - 1)


class CountdownConfig(vf.TasksetConfig):
    """Which problems there are. A problem is in one split, whatever the seed."""

    split: Split = "train"
    problems: int = 2000
    """Number of different problems."""
    counts: tuple[int, ...] = (3,)
    """How many numbers a problem has, 2 to 6."""
    number_range: tuple[int, int] = (1, 30)
    target_range: tuple[int, int] = (10, 50)
    seed: int = 0


class CountdownTaskset(vf.Taskset[CountdownReply, CountdownConfig]):
    """Solvable problems that are generated, the same ones for the same configuration."""

    def load(self) -> Iterator[CountdownReply]:
        """Yields the tasks. Raises ValueError for a range out of bounds, or more problems than there are."""
        settings = self.config
        source = CountdownTask(
            style="direct",
            train="generated",
            test="generated",
            longproc_dir=None,
            counts=settings.counts,
            number_range=settings.number_range,
            target_range=settings.target_range,
            max_search_lines=None,
            train_problems=settings.problems,
            validation_problems=settings.problems,
            test_problems=settings.problems,
            seed=settings.seed,
        )
        for problem in source.problems(settings.split):
            yield CountdownReply(_data(problem), settings.task)


def _data(problem: CountdownProblem) -> CountdownData:
    numbers, target = problem.numbers, problem.target
    shown = ", ".join(map(str, numbers))
    return CountdownData(
        name=problem.key,
        prompt=PROMPT.format(numbers=shown, target=target, open=OPEN, close=CLOSE),
        numbers=numbers,
        target=target,
        answer="\n".join([OPEN, *_solution(numbers, target), CLOSE]),
    )


def _solution(state: tuple[int, ...], target: int) -> Iterator[str]:
    """Yields the equations of the first solution in the game's order of moves."""
    while len(state) > 1:
        move = best_moves(state, target)[0]
        yield move.spaced
        state = move.state
