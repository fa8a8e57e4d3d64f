"""Verdicts: the last box decides, and the plan is looked at beside it."""

from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.arithmetic import ArithmeticProblem, Clause, Story, scores, verify
from tests.pace import assert_bounded_work

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


def test_the_plan_itself() -> None:
    assert PROBLEM.solution == " buys 5+3=8\n eats 8-3=5\n finds 5+2=7\n\\boxed{7}"
    assert verify(PROBLEM, PROBLEM.solution).correct
    assert scores(PROBLEM, PROBLEM.solution) == {
        "arithmetic/legal_steps": 1.0,
        "arithmetic/right_plan": 1.0,
        "arithmetic/right_by_another_plan": 0.0,
    }


@pytest.mark.parametrize("wrong_plan", ["5+2=7", "5-3=2\n2+3=5\n5+2=7", "5+3=8\n8-1=7", ""])
def test_a_wrong_plan_with_the_right_answer_is_right_and_recognised(wrong_plan: str) -> None:
    """Both words overlooked, both read the wrong way round, an equation made up, none at all."""
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
        ("\\boxed{7 figs}", "ok"),
        ("\\boxed{7", "unparsed"),
        ("\\boxed{}", "unparsed"),
        ("\\boxed{3+4}", "unparsed"),
        ("\\boxed{9^9^9^9}", "unparsed"),
    ],
)
def test_the_last_box_decides(completion: str, status: str) -> None:
    verdict = verify(PROBLEM, completion)
    assert verdict.status == status
    assert bool(verdict.reason) == (status != "ok")


def test_false_equations_are_counted() -> None:
    assert scores(PROBLEM, "5+3=9\n9-3=6\n\\boxed{6}")["arithmetic/legal_steps"] == 0.5
    assert scores(PROBLEM, "\\boxed{6}")["arithmetic/legal_steps"] == 0.0


@pytest.mark.parametrize("unit", ["1+1=2\n", "\\boxed{", "\\boxed{7}", "{", "9", "(((", "\ud800", "\\frac{1}{"])
def test_hostile_text_takes_bounded_work(unit: str) -> None:
    text = unit * (200_000 // len(unit))
    with assert_bounded_work():
        for completion in (text, f"\\boxed{{{text}", f"\\boxed{{{text}}}", f"{text}\\boxed{{7}}"):
            assert verify(PROBLEM, completion).status in ("ok", "wrong", "unparsed")
            assert 0 <= scores(PROBLEM, completion)["arithmetic/legal_steps"] <= 1
