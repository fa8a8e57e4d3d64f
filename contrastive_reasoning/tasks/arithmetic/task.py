"""Arithmetic word problems as a task: stories of two to four steps, with some words that are learnt from outcomes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from functools import lru_cache, partial
from itertools import islice
from typing import Literal, get_args

from contrastive_reasoning.ranges import at_least, one_of
from contrastive_reasoning.tasks.arithmetic.equations import parse_steps, scores, verify
from contrastive_reasoning.tasks.arithmetic.generator import StorySpace, draw_distinct, draw_perturbed
from contrastive_reasoning.tasks.arithmetic.story import PlanStep, Story, plan_of, true_meanings
from contrastive_reasoning.tasks.base import Problem, Split, make_tuples

TestSet = Literal["in_distribution", "perturb_simple", "perturb_hard"]
INSTRUCTION = r"Write one equation per line, such as finds 2+3=5, and end with \boxed{answer}."
"""Instruction for policies without a warm start on this form."""


def prompt_of(story: Story, *, instructed: bool) -> str:
    """The prompt of a story, with the instruction if ``instructed``."""
    return f"{story.text}{INSTRUCTION}\n" if instructed else story.text


def solution_text(plan: tuple[PlanStep, ...]) -> str:
    r"""One indented line per step, with the word and its equation, then ``\boxed{answer}``.

    The indentation makes the word, after its space, the same token as in the story.
    """
    return "\n".join([*[f" {step}" for step in plan], rf"\boxed{{{plan[-1].equation.result}}}"])


@dataclass(frozen=True, init=False)
class ArithmeticProblem(Problem):
    """The question at the end of ``story``. Problems with equal keys are the same, whatever the names and the thing.

    ``fields`` hold the plan's equations, the source and, for a perturbed problem, the change and the original's key.
    """

    story: Story
    solution: str
    """A correct completion that follows the plan."""

    def __init__(
        self,
        story: Story,
        *,
        limit: int,
        instructed: bool = False,
        source: str = "given",
        change: str | None = None,
        base: str | None = None,
    ) -> None:
        """
        Args:
            limit: the largest allowed amount.
            instructed: whether the prompt includes the instruction.
            change, base: the kind of change and the key of the original story, for a perturbed problem.

        Raises:
            ValueError: if the story has no plan within ``limit``.
        """
        plan = plan_of(story, true_meanings(story), limit=limit)
        if plan is None:
            raise ValueError(f"the story has no answer within {limit}: {story.text!r}")
        equations = tuple([step.equation for step in plan])
        more = {"plan": equations, "source": source, "change": change, "base": base}
        answer = str(equations[-1].result)
        prompt = prompt_of(story, instructed=instructed)
        super().__init__(id=f"arithmetic:{story.key}", prompt=prompt, answer=answer, fields=more)
        object.__setattr__(self, "story", story)
        object.__setattr__(self, "solution", solution_text(plan))

    @property
    def key(self) -> str:
        return self.story.key

    def __hash__(self) -> int:  # the generated one raises, because ``fields`` is a dict
        return hash(self.id)


@dataclass(frozen=True, kw_only=True)
class ArithmeticTask:
    """Generated stories in the form of GSM8K, generated once per process, on the first call of ``problems``."""

    test: TestSet
    """``in_distribution``, or variants of those test stories: ``perturb_simple`` or ``perturb_hard``."""
    instructed: bool
    steps: Sequence[int]
    """This field and the next seven: see :class:`StorySpace`."""
    clauses: Sequence[int]
    number_range: Sequence[int]
    new_numbers: Sequence[int]
    limit: int
    taught_share: float
    first_share: float
    both_share: float
    train_problems: int
    validation_problems: int
    test_problems: int
    seed: int

    verify = staticmethod(verify)
    parse_steps = staticmethod(parse_steps)
    scores = staticmethod(scores)

    def __post_init__(self) -> None:
        make_tuples(self, "steps", "clauses", "number_range", "new_numbers")
        one_of(get_args(TestSet), test=self.test)
        at_least(0, train_problems=self.train_problems, validation_problems=self.validation_problems)
        at_least(0, test_problems=self.test_problems)
        _ = self.space  # raises now for a range that is not allowed, rather than on the first draw

    @property
    def name(self) -> str:
        return "arithmetic stories"

    @property
    def space(self) -> StorySpace:
        """The distribution of the stories."""
        return StorySpace(**{field.name: getattr(self, field.name) for field in fields(StorySpace)})

    def problems(self, split: Split) -> Sequence[ArithmeticProblem]:
        """The problems of a split. No situation is in two splits, whatever the names and the question.

        Raises:
            ValueError: if the space is too small.
        """
        return _problems(self, split)


@lru_cache(maxsize=16)
def _problems(task: ArithmeticTask, split: Split) -> tuple[ArithmeticProblem, ...]:
    wanted = {"train": task.train_problems, "validation": task.validation_problems, "test": task.test_problems}[split]
    pose = partial(ArithmeticProblem, limit=task.limit, instructed=task.instructed)
    if split == "test" and task.test != "in_distribution":
        variants = islice(draw_perturbed(task.space, seed=task.seed, kind=task.test), wanted)
        return tuple([pose(one.story, source=task.test, change=one.change, base=one.base.key) for one in variants])
    stories = islice(draw_distinct(task.space, seed=task.seed, split=split), wanted)
    return tuple([pose(story, source="generated") for story in stories])
