from __future__ import annotations

import random
import re

import pytest

from contrastive_reasoning.tasks.countdown.grammar import MAX_BLANKS, MAX_DIGITS, Equation, parse_equation


@pytest.mark.parametrize(
    ("text", "equation"),
    [
        ("21 + 16 = 37", Equation(21, "+", 16, 37)),
        ("21+16=37", Equation(21, "+", 16, 37)),
        ("  22\t*   6 =132 \r", Equation(22, "*", 6, 132)),
        ("014 - 11 = 003", Equation(14, "-", 11, 3)),
        ("8 / 3 = 999", Equation(8, "/", 3, 999)),
    ],
)
def test_reads_an_equation(text: str, equation: Equation) -> None:
    assert parse_equation(text) == equation


@pytest.mark.parametrize(
    "text",
    [
        "",
        "21 + 16",
        "21 + 16 = 37.",
        "21 + 16 == 37",
        "21 + 16 = 37 = 37",
        "21 + 16 + 1 = 38",
        "-2 + 42 = 40",
        "2 - -12 = 14",
        "2.0 + 4 = 6",
        "2_1 + 4 = 25",
        "２１ + 4 = 25",
        "٢ + 4 = 6",
        "2² + 4 = 8",
        "21 × 4 = 84",
        "21 − 4 = 17",
        "2 ** 3 = 8",
        "7 // 2 = 3",
        "0x2b + 1 = 44",
        "True + 1 = 2",
        "(1 + 2) = 3",
        "1 + 2 = 3\n",
        "1 + 2\n= 3",
        "1\u00a0+ 2 = 3",
        "1 + 2 = 3\x00",
        "\ud800",
        f"{'1' * (MAX_DIGITS + 1)} + 1 = 2",
        f"1{' ' * (MAX_BLANKS + 1)}+ 1 = 2",
    ],
)
def test_refuses_all_else(text: str) -> None:
    assert parse_equation(text) is None


def test_agrees_with_a_reading_by_hand_on_random_strings() -> None:
    """The slow obvious reading: cut at = and at the operator, look at every character."""

    def by_hand(text: str) -> Equation | None:
        sides = text.strip(" \t\r").split("=")
        found = re.findall(r"[-+*/]", sides[0])
        if len(sides) != 2 or len(found) != 1:
            return None
        words = [word.strip(" \t") for word in (*sides[0].split(found[0]), sides[1])]
        if not all(word and set(word) <= set("0123456789") for word in words):
            return None
        return Equation(int(words[0]), found[0], int(words[1]), int(words[2]))

    draw = random.Random(0)
    numbers, blanks = ["1", "20", "007", "", "2²", "1.5", "-3", "1_0"], ["", " ", "\t", "\n"]
    read = 0
    for _ in range(5000):
        words = [draw.choice(numbers[:4] + part) for part in (["-3"], ["+", "*"], numbers, ["=", "=="], numbers)]
        words[1], words[3] = draw.choice("+-*/+-*/×"), draw.choice(["=", "=", "=="])
        text = "".join(draw.choices(blanks, weights=[4, 2, 2, 1])[0] + word for word in words)
        assert parse_equation(text) == by_hand(text), repr(text)
        read += parse_equation(text) is not None
    assert read > 200
