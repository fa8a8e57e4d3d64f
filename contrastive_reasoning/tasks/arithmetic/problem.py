"""A story as a problem, with the plan that answers it."""

from __future__ import annotations

from dataclasses import dataclass

from contrastive_reasoning.tasks.arithmetic.story import PlanStep, Story, plan_of, true_meanings
from contrastive_reasoning.tasks.base import Problem

INSTRUCTION = r"Write one equation per line, such as finds 2+3=5, and end with \boxed{answer}."
"""For policies that were not warm-started on the form."""


def prompt_of(story: Story, *, instructed: bool) -> str:
    """The story as it is posed, alone or with what to write."""
    return f"{story.text}{INSTRUCTION}\n" if instructed else story.text


def solution_text(plan: tuple[PlanStep, ...]) -> str:
    r"""An indented line for each step, the word and its equation, then ``\boxed{answer}``.

    A word behind a space is the same token as in the story.
    """
    return "\n".join([*[f" {step}" for step in plan], rf"\boxed{{{plan[-1].equation.result}}}"])


@dataclass(frozen=True, init=False)
class ArithmeticProblem(Problem):
    """What is asked at the end of ``story``. Equal keys are one problem, whatever the names and the thing.

    ``fields`` hold the plan's equations, the source and, of a perturbed problem, what was changed and in what.
    """

    story: Story
    solution: str
    """A completion that is right, by the plan."""

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
        """Fills id, prompt, answer and fields.

        Args:
            story: one that has a plan.
            limit: the largest amount.
            instructed: whether the prompt says what to write.
            source: where the problem comes from.
            change: of a perturbed problem, what was changed.
            base: of a perturbed problem, the key of the story it was made from.

        Raises:
            ValueError: for a story without an answer.
        """
        plan = plan_of(story, true_meanings(story), limit=limit)
        if plan is None:
            raise ValueError(f"the story has no answer within {limit}: {story.text!r}")
        equations = tuple([step.equation for step in plan])
        fields = {"plan": equations, "source": source, "change": change, "base": base}
        answer = str(equations[-1].result)
        prompt = prompt_of(story, instructed=instructed)
        super().__init__(id=f"arithmetic:{story.key}", prompt=prompt, answer=answer, fields=fields)
        object.__setattr__(self, "story", story)
        object.__setattr__(self, "solution", solution_text(plan))

    @property
    def key(self) -> str:
        return self.story.key

    def __hash__(self) -> int:
        return hash(self.id)
