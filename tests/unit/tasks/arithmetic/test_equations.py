"""Reading equations: the characters, the states, and no more time than the text is long."""

from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.arithmetic import Equation, parse_steps, same_plan
from contrastive_reasoning.tasks.arithmetic.equations import MAX_STEPS
from contrastive_reasoning.tasks.base import Problem
from tests.pace import assert_bounded_work

PROBLEM = Problem(id="x", prompt="", answer="7", fields={"plan": ()})


@pytest.mark.parametrize(
    ("completion", "texts"),
    [
        ("5+4=9\n9-2=7\n\\boxed{7}", ["5+4=9", "9-2=7"]),
        ("First, 5 + 4 = 9 figs. Then 9 × 2 = 18.", ["5 + 4 = 9", "9 × 2 = 18"]),
        ("2+3+4=9", []),
        ("2 + 3 + 4 = 9", []),
        ("1.5+2=3", []),
        ("5+4=9.5", []),
        ("5+4=9+2=11", []),
        ("x+4=9, 5+y=9, 5+4", []),
        ("12345678901+1=12345678902", []),
    ],
)
def test_spans_are_the_equations_text(completion: str, texts: list[str]) -> None:
    assert [completion[step.start : step.end] for step in parse_steps(PROBLEM, completion)] == texts


def test_a_false_equation_is_illegal_and_leaves_the_state() -> None:
    steps = parse_steps(PROBLEM, "5+4=9\n9-2=8\n9/2=4\n9-2=7\n3-5=2\n8/0=0\n")
    assert [step.legal for step in steps] == [True, False, False, True, False, False]
    assert [step.state for step in steps] == [(9,), (9,), (9,), (9, 7), (9, 7), (9, 7)]


def test_true_equations() -> None:
    assert str(Equation.of(12, "/", 4)) == "12/4=3"
    assert Equation.of(12, "/", 5) is None
    assert Equation.of(12, "/", 0) is None
    assert Equation.of(3, "-", 5) is None


def test_plans_are_compared_as_equations_in_any_order() -> None:
    plan = [Equation(5, "+", 4, 9), Equation(2, "*", 3, 6), Equation(9, "-", 6, 3)]
    assert same_plan([Equation(3, "*", 2, 6), Equation(4, "+", 5, 9), Equation(9, "-", 6, 3)], plan)
    assert not same_plan(plan[:2], plan)
    assert not same_plan([*plan, plan[0]], plan)
    assert not same_plan([Equation(9, "-", 6, 3), Equation(2, "*", 3, 6), Equation(3, "+", 6, 9)], plan)


@pytest.mark.parametrize("unit", ["1", "1+", "1 + 1", "1+1=2\n", "\\boxed{", "1" * 9 + "+", "= ", "−"])
def test_hostile_text_takes_bounded_work(unit: str) -> None:
    with assert_bounded_work():
        steps = parse_steps(PROBLEM, unit * (300_000 // len(unit)))
    assert len(steps) <= MAX_STEPS
