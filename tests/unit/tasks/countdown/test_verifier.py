from __future__ import annotations

import itertools
import random

import pytest

from contrastive_reasoning.tasks.base import OK
from contrastive_reasoning.tasks.countdown.game import legal_moves
from contrastive_reasoning.tasks.countdown.problem import CountdownProblem
from contrastive_reasoning.tasks.countdown.steps import parse_steps
from contrastive_reasoning.tasks.countdown.verifier import (
    MAX_BLANKS,
    MAX_BLOCK,
    MAX_DIGITS,
    Equation,
    objection,
    parse_equation,
    solution_span,
    verify,
)

FOUR = CountdownProblem((21, 16, 17, 26), 46)
DIRECT = CountdownProblem((21, 16, 17, 26), 46, style="direct")
RIGHT = ("21 + 16 = 37", "37 - 17 = 20", "26 + 20 = 46")


def solution(*lines: str) -> str:
    return "<Solution>\n" + "\n".join(lines) + "\n</Solution>"


def test_last_complete_solution_block_counts() -> None:
    right, wrong = solution(*RIGHT), solution(*RIGHT[:2], "26 + 20 = 47")
    assert verify(FOUR, right) == OK
    assert verify(FOUR, wrong + right).correct
    assert not verify(FOUR, right + wrong).correct
    assert verify(FOUR, "I write <Solution> and </Solution>.\n" + right).correct
    assert verify(FOUR, "</Solution>" + right + "<Solution>").correct
    assert verify(FOUR, right + "</Solution>").correct
    assert solution_span("<Solution>a<Solution>b</Solution>") == (21, 22)


def test_direct_style_rejects_tags_and_search_style_rejects_bare_moves() -> None:
    assert verify(DIRECT, "21+16=37;37-17=20;26+20=46") == verify(DIRECT, "21+16=37\n37-17=20\n26+20=46\n") == OK
    assert verify(DIRECT, solution(*RIGHT)).status == "unparsed"
    assert verify(FOUR, "21+16=37;37-17=20;26+20=46").status == "unparsed"
    assert verify(DIRECT, "21+16=37;37-17=20").reason == "number of equations: 2 instead of 3"


@pytest.mark.parametrize(
    ("completion", "status", "reason"),
    [
        ("", "unparsed", "empty completion"),
        (" \n\t", "unparsed", "empty completion"),
        ("21 + 16 = 37", "unparsed", "no <Solution> tag"),
        ("<solution>1 + 1 = 2</solution>", "unparsed", "no <Solution> tag"),
        ("<Solution>21 + 16 = 37", "unparsed", "no </Solution> tag after <Solution>"),
        ("</Solution><Solution>", "unparsed", "no </Solution> tag after <Solution>"),
        (solution(), "unparsed", "number of equations: 0 instead of 3"),
        (solution("", RIGHT[0], "", *RIGHT[1:]), "unparsed", "number of equations: 4 instead of 3"),
        (solution("21 + 16 = 37", "37 - 17 = 20", "26 + 20"), "unparsed", "equation 3 has no = sign"),
        (solution("21 + 16 = 37", "37 - 17 == 20", "1"), "unparsed", "equation 2 has two = signs"),
        (solution("21 - 26 = -5", "37 - 17 = 20", "1"), "unparsed", "equation 1 has a negative number"),
        (solution("-5 + 16 = 11", "37 - 17 = 20", "1"), "unparsed", "equation 1 has a negative number"),
        (solution("21.0 + 16 = 37", "1", "1"), "unparsed", "equation 1 has a decimal number"),
        (solution("(21 + 16) = 37", "1", "1"), "unparsed", "equation 1 has brackets"),
        (solution("２１ + 16 = 37", "1", "1"), "unparsed", "equation 1 is not plain ASCII"),
        (solution("first 21 + 16 = 37", "1", "1"), "unparsed", "equation 1 has words in it"),
        (solution("2_1 + 16 = 37", "1", "1"), "unparsed", "equation 1 does not read a op b = c"),
        (solution("9" * 200 + " + 16 = 37", "1", "1"), "unparsed", "equation 1 is longer than 120 characters"),
        (solution("9" * MAX_BLOCK), "unparsed", f"solution longer than {MAX_BLOCK} characters"),
        (solution("21 + 16 = 38", "37 - 17 = 20", "26 + 20 = 46"), "wrong", "wrong arithmetic: 21 + 16 = 38"),
        (solution("21 + 16 = 37", "21 + 17 = 38", "38 + 26 = 64"), "wrong", "uses 21 twice"),
        (solution("17 + 17 = 34", "21 + 16 = 37", "26 + 20 = 46"), "wrong", "uses 17 twice"),
        (solution("21 + 16 = 37", "37 + 7 = 44", "26 + 20 = 46"), "wrong", "uses 7, which is not there"),
        (solution("16 - 21 = 5", "26 + 20 = 46", "46 * 1 = 46"), "wrong", "negative result: 16 - 21"),
        (solution("21 / 16 = 1", "26 + 20 = 46", "46 * 1 = 46"), "wrong", "inexact division: 21 / 16"),
        (solution("21 / 0 = 0", "26 + 20 = 46", "46 * 1 = 46"), "wrong", "division by zero: 21 / 0"),
        (solution("26 * 21 = 546", "546 * 17 = 9282", "1 + 1 = 2"), "wrong", "result not below 2000: 546 * 17"),
        (solution("21 + 16 = 37", "37 - 17 = 20", "26 - 20 = 6"), "wrong", "ends at 6 instead of 46"),
    ],
)
def test_verify_returns_status_and_reason(completion: str, status: str, reason: str) -> None:
    verdict = verify(FOUR, completion)
    assert (verdict.status, verdict.reason) == (status, reason)
    assert not verdict.correct


def test_objection_matches_legal_moves() -> None:
    """Allowed are the moves of ``legal_moves``, also with commuted operands in a sum or product, and ``0/a``."""
    draw = random.Random(3)
    for _ in range(100):
        numbers = tuple(draw.choices([*range(13), 40, 50, 1999], k=draw.randint(2, 5)))
        legal = {move.equation for move in legal_moves(numbers)}
        legal |= {f"{b}{op}{a}={result}" for a, op, b, result, _ in legal_moves(numbers) if op in "+*"}
        legal |= {f"0/{a}=0" for a in numbers if a and 0 in numbers}
        for a, b in itertools.permutations(numbers, 2):
            for op, result in (("+", a + b), ("-", a - b), ("*", a * b), ("/", a // b if b else 0)):
                allowed = objection(numbers, Equation(a, op, b, result)) is None
                assert allowed == (f"{a}{op}{b}={result}" in legal), (numbers, a, op, b)
                assert objection(numbers, Equation(a, op, b, result + 1)) is not None


FRAGMENTS = [
    *(*RIGHT, "<Solution>", "</Solution>", "\n", ";", " ", "\t", "\r\n", "21+16=37"),
    *("=", "+", "/ 0", "-5", "１", "\ud800", "\x00", "\u2028", "9" * 50, "(", "**", "# Search Procedure\n", "é"),
]


def test_unicode_signs_are_operators_in_verify_and_parse_steps() -> None:
    problem = CountdownProblem((2, 3, 4, 5), 29)
    text = "Search\n<Solution>\n2 × 3 = 6\n6 × 4 = 24\n24 + 5 = 29\n</Solution>"
    assert verify(problem, text).correct
    assert [text[step.start : step.end] for step in parse_steps(problem, text)] == text.splitlines()[2:5]
    direct = CountdownProblem((2, 3, 4, 5), 29, style="direct")
    assert verify(direct, "2 × 3 = 6; 6 ⋅ 4 = 24; 24 + 5 = 29;").correct


def test_random_text_is_correct_only_with_the_moves() -> None:
    """Half of the texts contain the moves in their frame, with random text around and between them."""
    draw = random.Random(1)
    for problem, opening, closing in ((FOUR, "<Solution>\n", "\n</Solution>"), (DIRECT, "", "")):
        right = wrong = 0
        for number in range(3000):
            around = ["".join(draw.choices(FRAGMENTS, k=draw.choice((0, 0, 1, 7)))) for _ in range(2)]
            between = ["".join(draw.choices(["\n", *FRAGMENTS], (len(FRAGMENTS), *[1] * len(FRAGMENTS)))) for _ in "12"]
            moves = RIGHT[0] + between[0] + RIGHT[1] + between[1] + RIGHT[2]
            text = around[0] + (opening + moves + closing if number % 2 else "") + around[1]
            verdict = verify(problem, text)
            assert bool(verdict.reason) != verdict.correct
            if verdict.correct:
                right += 1
                assert all(move.replace(" ", "") in text.replace(" ", "") for move in RIGHT), text
            else:
                wrong += number % 2
        assert right > 100
        assert wrong > 100


@pytest.mark.parametrize(
    "text",
    [
        *("", "21 + 16", "21 + 16 = 37.", "21 + 16 == 37", "21 + 16 = 37 = 37", "21 + 16 + 1 = 38", "-2 + 42 = 40"),
        *("2 - -12 = 14", "2.0 + 4 = 6", "2_1 + 4 = 25", "２１ + 4 = 25", "٢ + 4 = 6", "2² + 4 = 8", "21 × 4 = 84"),
        *("21 − 4 = 17", "2 ** 3 = 8", "7 // 2 = 3", "0x2b + 1 = 44", "True + 1 = 2", "(1 + 2) = 3", "1 + 2 = 3\n"),
        *("1 + 2\n= 3", "1\u00a0+ 2 = 3", "1 + 2 = 3\x00", "\ud800"),
        *(f"{'1' * (MAX_DIGITS + 1)} + 1 = 2", f"1{' ' * (MAX_BLANKS + 1)}+ 1 = 2"),
    ],
)
def test_parse_equation_returns_none_for_invalid_text(text: str) -> None:
    assert parse_equation(text) is None


def test_parse_equation_ignores_blanks_and_leading_zeros() -> None:
    assert parse_equation("  22\t*   6 =132 \r") == Equation(22, "*", 6, 132)
    assert parse_equation("014 - 11 = 003") == Equation(14, "-", 11, 3)
    assert parse_equation("8/3=999") == Equation(8, "/", 3, 999)
