"""Equations: their spans and states, the verdict from the last box, and work in proportion to text length."""

from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.arithmetic import (
    ArithmeticProblem,
    Clause,
    Equation,
    Story,
    parse_steps,
    same_plan,
    scores,
    verify,
)
from contrastive_reasoning.tasks.arithmetic.equations import MAX_STEPS
from contrastive_reasoning.tasks.base import Problem
from tests.pace import assert_bounded_work

ANY = Problem(id="x", prompt="", answer="7", fields={"plan": ()})


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
def test_parse_steps_spans_cover_equation_text(completion: str, texts: list[str]) -> None:
    assert [completion[step.start : step.end] for step in parse_steps(ANY, completion)] == texts


def test_false_equation_is_illegal_and_keeps_state() -> None:
    steps = parse_steps(ANY, "5+4=9\n9-2=8\n9/2=4\n9-2=7\n3-5=2\n8/0=0\n")
    assert [step.legal for step in steps] == [True, False, False, True, False, False]
    assert [step.state for step in steps] == [(9,), (9,), (9,), (9, 7), (9, 7), (9, 7)]


def test_same_plan_ignores_order_of_equations_and_operands() -> None:
    plan = [Equation(5, "+", 4, 9), Equation(2, "*", 3, 6), Equation(9, "-", 6, 3)]
    assert same_plan([Equation(3, "*", 2, 6), Equation(4, "+", 5, 9), Equation(9, "-", 6, 3)], plan)
    assert not same_plan(plan[:2], plan)
    assert not same_plan([*plan, plan[0]], plan)
    assert not same_plan([Equation(9, "-", 6, 3), Equation(2, "*", 3, 6), Equation(3, "+", 6, 9)], plan)


# Mia has 5 figs. Mia buys 3. Mia eats 3. Mia finds 2. How many has Mia?
CANCELLING = Story(
    names=("Mia", "Tom"),
    thing="figs",
    start=5,
    opening="alone",
    second=0,
    clauses=(
        Clause(word="buys", person=0, number=3),
        Clause(word="eats", person=0, number=3),
        Clause(word="finds", person=0, number=2),
    ),
    asked=0,
)

PROBLEM = ArithmeticProblem(CANCELLING, limit=99)


def test_scores_report_legal_steps_and_right_plan() -> None:
    assert PROBLEM.solution == " buys 5+3=8\n eats 8-3=5\n finds 5+2=7\n\\boxed{7}"
    names = ("legal_steps", "right_plan", "right_by_another_plan")
    for completion, expected in [
        (PROBLEM.solution, (1.0, 1.0, 0.0)),
        ("5+3=9\n9-3=6\n\\boxed{6}", (0.5, 0.0, 0.0)),
        ("\\boxed{6}", (0.0, 0.0, 0.0)),
    ]:
        found = scores(PROBLEM, completion)
        assert tuple(found[f"arithmetic/{name}"] for name in names) == expected


@pytest.mark.parametrize("wrong_plan", ["5+2=7", "5-3=2\n2+3=5\n5+2=7", "5+3=8\n8-1=7", ""])
def test_wrong_plan_with_right_answer_is_correct_and_flagged(wrong_plan: str) -> None:
    """The plans: both words overlooked, both words reversed, an invented equation, and no equation."""
    completion = f"{wrong_plan}\n\\boxed{{7}}"
    verdict = verify(PROBLEM, completion)
    assert verdict.correct
    assert not verdict.fields["right_plan"]
    assert scores(PROBLEM, completion)["arithmetic/right_by_another_plan"] == 1.0


@pytest.mark.parametrize(
    ("completion", "status"),
    [
        ("5+2=7\n\\boxed{8}", "wrong"),
        ("5+2=7", "unparsed"),
        ("", "unparsed"),
        ("\\boxed{7} or rather \\boxed{8}", "wrong"),
        ("\\boxed{8} or rather \\boxed{7}", "ok"),
        ("\\boxed{8} or \\boxed{7}", "ok"),
        ("\\boxed{7 figs}", "ok"),
        ("\\boxed{8}</think> The answer is 7.", "wrong"),
        ("\\boxed{7", "unparsed"),
        ("\\boxed{}", "unparsed"),
        ("\\boxed{3+4}", "unparsed"),
        ("\\boxed{9^9^9^9}", "unparsed"),
    ],
)
def test_last_box_determines_verdict(completion: str, status: str) -> None:
    verdict = verify(PROBLEM, completion)
    assert verdict.status == status
    assert bool(verdict.reason) == (status != "ok")


@pytest.mark.parametrize(
    "unit", ["1", "1+", "1+1=2\n", "= ", "−", "\\boxed{", "\\boxed{7}", "{", "9", "(((", "\ud800", "\\frac{1}{"]
)
def test_verify_takes_bounded_work_on_hostile_text(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    with assert_bounded_work():
        for completion in (text, f"\\boxed{{{text}", f"\\boxed{{{text}}}", f"{text}\\boxed{{7}}"):
            assert verify(PROBLEM, completion).status in ("ok", "wrong", "unparsed")
            assert len(parse_steps(PROBLEM, completion)) <= MAX_STEPS
            assert 0 <= scores(PROBLEM, completion)["arithmetic/legal_steps"] <= 1
