"""What a policy is asked, and who judges it: a problem in the task's words, any text, or a validation problem."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from contrastive_reasoning.tasks.answer import verify_answer
from contrastive_reasoning.tasks.base import Problem, Step, Task, Verdict
from contrastive_reasoning.tasks.countdown import CountdownTask
from experiments.sample.options import EXAMPLE, MOST_DIGITS, SampleError

MOST_NUMBERS = 6
"""The oracle of more takes minutes."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """A problem, with what reads its completions."""

    problem: Problem
    steps: Callable[[str], list[Step]]
    verify: Callable[[str], Verdict] | None
    """None where no answer is known."""


def question(task: Task, *, prompt: str | None, answer: str | None, seed: int) -> Question:
    """The question that is put.

    Args:
        task: poses problems and reads completions.
        prompt: ``numbers=… target=…`` for Countdown, or a text; None: the validation problem number ``seed``.
        answer: of a text.
        seed: which validation problem, counted round.

    Raises:
        SampleError: for numbers that are none, an answer where there is one already, or a task without problems.
    """
    if prompt is not None and not prompt.startswith(("numbers=", "target=")):
        return _text(task, prompt, answer)
    if answer is not None:
        raise SampleError(f"answer={answer}: a problem of the task has its own; an answer goes with a prompt in words")
    problem = _validation(task, seed) if prompt is None else countdown(task, prompt)
    return Question(problem=problem, steps=partial(task.parse_steps, problem), verify=partial(task.verify, problem))


def countdown(task: Task, words: str) -> Problem:
    """The problem that ``numbers=3,5,8 target=23`` names, posed as the task poses it.

    Raises:
        SampleError: for other words, anything but whole numbers ≥ 0, or a task that is not Countdown.
    """
    if not isinstance(task, CountdownTask):
        raise SampleError(f"prompt={words}: such problems are Countdown's, and the task is {task.name}")
    given = {name: value for name, _, value in (part.partition("=") for part in words.split())}
    if sorted(given) != ["numbers", "target"]:
        raise SampleError(f"prompt={words}: a problem has numbers and a target, {EXAMPLE}")
    numbers = [_whole("numbers", number) for number in given["numbers"].strip("[]").split(",")]
    if len(numbers) > MOST_NUMBERS:
        raise SampleError(f"numbers={given['numbers']}: at most {MOST_NUMBERS}, got {len(numbers)}")
    return task.problem(numbers, _whole("target", given["target"]))


def _whole(name: str, text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= MOST_DIGITS):
        raise SampleError(f"prompt: {name} takes whole numbers of at least 0, got {text!r}; {EXAMPLE}")
    return int(text)


def _validation(task: Task, seed: int) -> Problem:
    try:
        problems = task.problems("validation")
    except (ValueError, OSError) as error:  # a file that is not there or holds no problems
        raise SampleError(f"{task.name}: {error}") from error
    if not problems:
        raise SampleError(f"{task.name} has no validation problems: give a prompt")
    return problems[seed % len(problems)]


def _text(task: Task, prompt: str, answer: str | None) -> Question:
    problem = Problem(id="given", prompt=prompt, answer=answer or "")
    return Question(
        problem=problem,
        # Countdown's moves have no meaning without numbers to play them from.
        steps=_none if isinstance(task, CountdownTask) else partial(task.parse_steps, problem),
        verify=None if answer is None else partial(verify_answer, answer),
    )


def _none(completion: str) -> list[Step]:
    return []
