r"""Texts by which a model could stop or deceive the verifier: each must get a verdict, and none may get ``ok``."""

from __future__ import annotations

import random
import sys

import pytest

from contrastive_reasoning.tasks.answer import Question, pose, verify_answer
from contrastive_reasoning.tasks.answer.limits import objection
from contrastive_reasoning.tasks.answer.spelling import plain

REJECTED = {
    "power in an exponent": [
        "9^{9^{9^9}}",
        "9**9**9",
        "9^9^9",
        "9^{9}^{9}",
        "2^((99)^{99})",
        r"9^\frac{9^9}{1}",
        "2^{9!}",
        r"\exp(\exp(9))",
    ],
    "exponents of more than 10000 in all": [
        "((2^{99})^{99})^{99}",
        "2^{99999}",
        r"2^{99 \cdot 999}",
        r"\sqrt[99999]{2}",
    ],
    "formula to a power of more than 100": ["(a+b+c)^{1000}", "x^{101}"],
    "factorial of more than 200": ["201!", "(9!)!", "9!!"],
    "binomial of more than 10000": [r"\binom{99999}{2}"],
    r"unknown command \int": [r"\int_0^1 x"],
    r"unknown command \sum": [r"\sum_{k=1}^{10} k"],
    r"unknown command \Gamma": [r"\Gamma(99999999)"],
    "brackets nested deeper than 12": [f"{'(' * 20}7{')' * 20}+1"],
    "brackets do not match": ["(7+1"],
    "number longer than 60 digits": [f"{'1' * 61}+1"],
    "formula longer than 300 characters": ["1+" * 200 + "1"],
    "not plain ASCII": ["٧+1"],
    "words where a formula is wanted": ["__import__('os')", "lambda: 7", "7 if 1 else 0"],
    "numbers side by side": ["7 8"],
    "operators in a row": ["7===7", "|" * 200],
    "number with an index": ["7_8+1"],
}
"""Reason → formulas."""


@pytest.mark.parametrize(
    ("formula", "reason"), [(formula, reason) for reason, formulas in REJECTED.items() for formula in formulas]
)
def test_objection_rejects_formula_before_evaluation(formula: str, reason: str) -> None:
    assert objection(plain(formula)) == reason


@pytest.mark.parametrize(
    "formula",
    ["2^{4950}", "x^8 + x^7 + 1", "11z^{17}(5+11z^{17})", "(x-1)^3(x+1)^3", "100! + 101", r"\binom{14}{6}", "2^{1/5}"],
)
def test_objection_accepts_ordinary_formulas(formula: str) -> None:
    assert objection(plain(formula)) is None


@pytest.mark.parametrize(
    "answer",
    [
        "7" * 10**6,
        "7," * 10**6,
        "7" + " " * 10**6 + "8",
        "{" * 10**6,
        "{" * 200 + "7" + "}" * 199 + "8}",
        r"\boxed{" * 40 + "8" + "}" * 40,
        r"\frac{1}{" * 20 + "7" + "}" * 20,
        r"\text{" * 50 + "7" + "}" * 50 + "8",
        r"\left(" * 30 + "8" + r"\right)" * 30,
        "[" * 300,
        "," * 300,
        "=" * 300,
        r"\\" * 200,
        "7;" * 100 + "8",
        ";=" * 250,
        r"\pm" * 100,
        r"8 \approx 7",
        "7\x008",
        "\ud800",
        "1e999",
        r"10^{99999}",
        "exit()",
        "\\",
        "{}",
        "$",
        "-",
        "%",
        r"\infty - \infty",
    ],
)
def test_hostile_answer_is_wrong_or_unparsed_with_short_reason(answer: str) -> None:
    verdict = verify_answer("7", rf"\boxed{{{answer}}}")
    assert verdict.status in ("wrong", "unparsed")
    assert verdict.reason
    assert len(verdict.reason) < 80


def test_pose_returns_no_error_on_random_text() -> None:
    text = r"\frac { } ( ) [ ] 1 23 7 x \sqrt \text{ ^ _ + - / = , \pi ! % or cm \{ \} ° \boxed{ \\ & \pm e | \cup $ ;"
    pieces = [*text.split(), " ", "\n", "٣", "√", r"\begin{pmatrix}", r"\end{pmatrix}", r"\,", "million", "apples"]
    draw = random.Random(0)
    for _ in range(200):
        text = "".join(draw.choices(pieces, k=draw.randint(1, 15))) * draw.choice([1, 1, 1, 9])
        for gold in ("7", "(1,2)", r"\text{east}", "x^2", "1,2", r"\begin{pmatrix}1\\2\end{pmatrix}"):
            found = pose(gold, rf"\boxed{{{text}}}")
            assert isinstance(found, Question) or found.status != "error", text


def test_verify_answer_works_near_recursion_limit() -> None:
    def down(levels: int) -> str:
        return down(levels - 1) if levels else verify_answer("7", r"\boxed{((((7))))}").status

    assert down(sys.getrecursionlimit() - 400) == "ok"
