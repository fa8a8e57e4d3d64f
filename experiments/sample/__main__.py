"""Sample completions of one problem, with the judgement of rules, oracle and critic on each step:  make sample

python -m experiments.sample [the sample's own arguments] [overrides]

model=embedded:qwen_countdown         a hub name, or the folder of a model, stage or run; default: the configuration's
prompt='numbers=3,5,8 target=23'      a Countdown problem or any text; default: a validation problem, chosen by seed=1

Overrides choose the task and other settings: task=arithmetic, task.style=longproc, policy.compute_dtype=float32.
"""

from __future__ import annotations

import re
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from functools import partial

from hydra.core.override_parser.types import Quote, QuotedString

from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.tasks.answer import verify_answer
from contrastive_reasoning.tasks.base import Problem, Step, Task, Verdict
from contrastive_reasoning.tasks.countdown import CountdownTask
from experiments.assemble import build
from experiments.cli.arguments import split_own_keys
from experiments.cli.commands import COMMANDS
from experiments.config.composition import compose_lines
from experiments.config.folders import take_config_dir
from experiments.config.override_checks import override_error
from experiments.schema import Root, composing
from experiments.system.terminal import USAGE_ERROR, be_quiet, protect_output

BASE = ("name=sample", "stages=[evaluate]")
"""Overrides in place of an experiment. Its stages are not run."""
EXAMPLE = "prompt='numbers=3,5,8 target=23'"
WHOLE = re.compile("[0-9]{1,6}")
MOST_NUMBERS = 6
"""The exact oracle takes a tenth of a second for six numbers and some seconds for seven."""


def parse_arguments(arguments: Sequence[str]) -> tuple[Namespace, list[str]]:
    """Splits the arguments into the sample's own and the overrides.

    Later overrides win; those of short names come first.

    Raises:
        ValueError: for a mistyped name, a problem without quotes, or an invalid number of completions.
    """
    if loose := next((argument for argument in arguments if argument.startswith(("numbers=", "target="))), None):
        raise ValueError(f"{loose}: a problem is one word, {EXAMPLE}")
    parser = COMMANDS["sample"]
    given, overrides = split_own_keys(arguments, parser.own_keys, keys=[field.name for field in fields(Root)])
    options = parser.read([f"{key}={value}" for key, value in given.items() if value])
    at_least(1, n=options.n)
    short = []
    if options.model:  # its name may hold spaces and commas
        name = QuotedString(text=options.model, quote=Quote.single).with_quotes()
        short += [f"policy.pretrained={name}", "policy.chat_template=null"]  # its own chat template, if it has one
    for key in ("temperature", "max_tokens"):
        if (value := getattr(options, key)) is not None:
            short.append(f"rollout.sampling.{key}={value}")
    return options, [*short, *overrides]


@dataclass(frozen=True, kw_only=True)
class GivenProblem:
    """A problem, with the functions that parse and verify its completions."""

    problem: Problem
    steps: Callable[[str], list[Step]]
    verify: Callable[[str], Verdict] | None
    """None if no answer is known."""


def given_problem(task: Task, *, prompt: str | None, answer: str | None, seed: int) -> GivenProblem:
    """Returns the problem of a prompt.

    Args:
        task: the task of the configuration.
        prompt: ``numbers=… target=…`` for Countdown, or a text; None: validation problem number ``seed``.
        answer: the correct answer to a text; None: unknown.
        seed: number of the validation problem, modulo their count.

    Raises:
        ValueError: for invalid numbers, an answer to a problem that has one, or a task without problems.
    """
    if prompt is not None and not prompt.startswith(("numbers=", "target=")):
        problem = Problem(id="given", prompt=prompt, answer=answer or "")
        return GivenProblem(
            problem=problem,
            # moves of Countdown cannot be parsed without its numbers
            steps=(lambda _: []) if isinstance(task, CountdownTask) else partial(task.parse_steps, problem),
            verify=None if answer is None else partial(verify_answer, answer),
        )
    if answer is not None:
        raise ValueError(f"answer={answer}: a problem of the task has its own; an answer goes with a prompt in words")
    if prompt is not None:
        problem = _countdown(task, prompt)
    else:
        try:
            problems = task.problems("validation")
        except (ValueError, OSError) as error:  # a file that is missing or has no problems
            raise ValueError(f"{task.name}: {error}") from error
        if not problems:
            raise ValueError(f"{task.name} has no validation problems: give a prompt")
        problem = problems[seed % len(problems)]
    return GivenProblem(problem=problem, steps=partial(task.parse_steps, problem), verify=partial(task.verify, problem))


def _countdown(task: Task, words: str) -> Problem:
    """Returns the problem of ``numbers=3,5,8 target=23``, with the prompt of the task."""
    if not isinstance(task, CountdownTask):
        raise ValueError(f"prompt={words}: such problems are Countdown's, and the task is {task.name}")
    given = {name: value for name, _, value in (part.partition("=") for part in words.split())}
    numbers, target = given.pop("numbers", "").strip("[]").split(","), given.pop("target", "")
    if given or len(numbers) > MOST_NUMBERS or not all(map(WHOLE.fullmatch, [*numbers, target])):
        raise ValueError(f"prompt={words}: it takes up to {MOST_NUMBERS} whole numbers and a target, {EXAMPLE}")
    return task.problem([*map(int, numbers)], int(target))


def main(arguments: Sequence[str]) -> int:
    """Samples completions and shows them, or prints one sentence for an invalid argument. Returns the exit code."""
    if {"-h", "--help"} & set(arguments):
        COMMANDS["sample"].print_help()
        return 0
    try:
        options, overrides = parse_arguments(take_config_dir(arguments))
        if (error := override_error([*BASE, *overrides], multirun=False, loads=True)) is not None:
            raise ValueError(error)
        with composing():
            config = compose_lines(*BASE, *overrides)
        to_show = given_problem(build(config, "task"), prompt=options.prompt, answer=options.answer, seed=config.seed)
        from experiments.sample.completions import draw_and_show  # slow: it imports the parts
        from experiments.stages.experiment import check_arguments

        check_arguments(config)
        draw_and_show(config, to_show, critic=options.critic, count=options.n)
    except ValueError as error:
        print(error, file=sys.stderr)
        return USAGE_ERROR
    return 0


if __name__ == "__main__":
    be_quiet()
    protect_output()
    sys.exit(main(sys.argv[1:]))
