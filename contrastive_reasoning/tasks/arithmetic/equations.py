r"""The equations of a completion, ``a op b = c`` on whole numbers, and the verdict on it.

Only the number in the last ``\boxed{}`` determines the verdict. Its ``fields["right_plan"]`` is true if the equations
are those of the plan. Answers that are right by chance (two misread words that cancel) can thus be counted. The pattern
that reads the equations takes time linear in the length of the text.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice
from statistics import mean
from typing import NamedTuple

from contrastive_reasoning.tasks.answer import pose
from contrastive_reasoning.tasks.answer.extract import last_box
from contrastive_reasoning.tasks.base import Problem, Step, Verdict, unparsed

MAX_STEPS = 1_000
"""Maximum number of equations that are read; the rest of the text is ignored."""

_SIGNS = {"×": "*", "÷": "/", "−": "-"}
_BEFORE = r"(?<![0-9.,])(?<![-+*/×÷−=])(?<![-+*/×÷−=] )"
_EQUATION = re.compile(
    rf"{_BEFORE}([0-9]{{1,9}}) ?([-+*/×÷−]) ?([0-9]{{1,9}}) ?= ?([0-9]{{1,9}})(?![0-9]|[.,][0-9]| ?[-+*/×÷−])"
)


class Equation(NamedTuple):
    """``a op b = result`` as written, true or not."""

    a: int
    op: str
    b: int
    result: int

    @classmethod
    def of(cls, a: int, op: str, b: int) -> Equation | None:
        """The true equation; None if the result is not a whole number ≥ 0."""
        quotient = a // b if b and a % b == 0 else -1
        result = {"+": a + b, "-": a - b, "*": a * b, "/": quotient}[op]
        return cls(a, op, b, result) if result >= 0 else None

    @property
    def true(self) -> bool:
        return Equation.of(self.a, self.op, self.b) == self

    @property
    def canonical(self) -> Equation:
        """The equation in a form that is the same for both orders of a sum or a product."""
        return self._replace(a=self.b, b=self.a) if self.op in "+*" and self.a > self.b else self

    def __str__(self) -> str:
        return f"{self.a}{self.op}{self.b}={self.result}"


def parse_steps(problem: Problem, completion: str) -> list[Step]:
    """Returns one step per equation; ``state`` holds the results of the true ones so far. No text makes it raise."""
    steps: list[Step] = []
    state: tuple[int, ...] = ()
    for start, end, equation in _find_equations(completion):
        state = (*state, equation.result) if equation.true else state
        more = 2 if completion[end : end + 1] in (" ", ".", ",") else 1  # 7 may become 70, 7.5 or 7 + 3
        steps.append(Step(start=start, end=end, state=state, legal=equation.true, settled=end + more))
    return steps


def same_plan(equations: Iterable[Equation], plan: Iterable[Equation]) -> bool:
    """Whether both have the same equations, in any order."""
    return Counter(equation.canonical for equation in equations) == Counter(equation.canonical for equation in plan)


def verify(problem: Problem, completion: str) -> Verdict:
    """Verifies a completion by its last box; no text makes it raise."""
    return _judge(problem, completion, [equation for _, _, equation in _find_equations(completion)])


def scores(problem: Problem, completion: str) -> Mapping[str, float]:
    """Scores in [0, 1]: the share of true equations; exactly the plan's equations; a right answer by another plan."""
    equations = [equation for _, _, equation in _find_equations(completion)]
    verdict = _judge(problem, completion, equations)
    right_plan = bool(verdict.fields["right_plan"])
    return {
        "arithmetic/legal_steps": mean([float(equation.true) for equation in equations] or [0.0]),
        "arithmetic/right_plan": float(right_plan),
        "arithmetic/right_by_another_plan": float(verdict.correct and not right_plan),
    }


def _find_equations(completion: str) -> list[tuple[int, int, Equation]]:
    """The equations of a completion, each with its span: the first character and one past the last."""
    written = []
    for match in islice(_EQUATION.finditer(completion), MAX_STEPS):
        a, op, b, result = match.groups()
        written.append((*match.span(), Equation(int(a), _SIGNS.get(op, op), int(b), int(result))))
    return written


def _judge(problem: Problem, completion: str, equations: Iterable[Equation]) -> Verdict:
    start = completion.rfind(r"\boxed{")
    inside = last_box(completion[start:])  # text after the box is ignored, even after an end-of-thoughts tag
    text = completion[start:] if inside is None else rf"\boxed{{{inside}}}"
    verdict = unparsed("no boxed answer") if start < 0 else pose(problem.answer, text)
    if not isinstance(verdict, Verdict):  # a symbolic comparison would be needed, but the answer is a number
        verdict = unparsed("formula instead of a number")
    return replace(verdict, fields={"right_plan": same_plan(equations, problem.fields["plan"])})
