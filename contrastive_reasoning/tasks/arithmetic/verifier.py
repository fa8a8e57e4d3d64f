r"""The verifier: is the number in the last ``\boxed{}`` the answer, and is it there for the right reasons?

Only the number decides. ``fields["right_plan"]`` says beside it whether the equations are the plan's, so that an answer
that is right by chance (two misread words that cancel, a number that stands twice) can be counted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from statistics import mean

from contrastive_reasoning.tasks.answer import pose
from contrastive_reasoning.tasks.arithmetic.equations import same_plan, written
from contrastive_reasoning.tasks.base import Problem, Verdict

BOX = r"\boxed{"


def verify(problem: Problem, completion: str) -> Verdict:
    """Judge a completion by its last box; never raises on any text."""
    equations = [equation for _, _, equation in written(completion)]
    verdict = _of_the_last_box(problem.answer, completion)
    return replace(verdict, fields={"right_plan": same_plan(equations, problem.fields["plan"])})


def scores(problem: Problem, completion: str) -> Mapping[str, float]:
    """Shares in [0, 1]: true equations, the plan's equations and no others, right answers by another plan."""
    verdict = verify(problem, completion)
    right_plan = bool(verdict.fields["right_plan"])
    return {
        "arithmetic/legal_steps": mean([float(equation.true) for _, _, equation in written(completion)] or [0.0]),
        "arithmetic/right_plan": float(right_plan),
        "arithmetic/right_by_another_plan": float(verdict.correct and not right_plan),
    }


def _of_the_last_box(answer: str, completion: str) -> Verdict:
    start = completion.rfind(BOX)
    if start < 0:
        return Verdict(status="unparsed", reason="no boxed answer")
    judged = pose(answer, completion[start:])
    # What is left open is a formula, which would have to be worked out: the answer is a number.
    return judged if isinstance(judged, Verdict) else Verdict(status="unparsed", reason="formula instead of a number")
