"""Products without a sign, as prepared for math-verify, and the step budget of a comparison."""

from __future__ import annotations

import sys
from itertools import count

import pytest

from contrastive_reasoning.tasks.answer.spelling import plain
from contrastive_reasoning.tasks.answer.symbolic import OutOfSteps, parse_formula, with_signs, within


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("2(3)", 6),
        (r"(2)(3)(4)", 24),
        (r"\frac{1}{2}(6)(4)", 12),
        (r"4\left(\frac32\right)", 6),
        (r"\binom{5}{2}\binom{4}{1}", 40),
        (r"3\binom{4}{2}", 18),
        (r"\frac{4}{2}\frac{1}{2}", 1),
        (r"3\sqrt{4}", 6),
        (r"\sqrt[3]{8}(5)", 10),
        ("2^3(4)", 32),
        ("2^{10}(3)", 3072),
        ("1.5(4)", 6),
        (r"2\frac{1}{2}", 2.5),
        (r"2 \frac12", 2.5),
        ("(2)3", 6),
    ],
)
def test_parse_formula_reads_products_without_sign(text: str, value: float) -> None:
    assert float(parse_formula(plain(text))) == value  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize(
    "text",
    [
        "123",
        "1.5",
        "(-3,5)",
        "(1,2)(3,4)",
        "[0,1)(2)",
        r"\sin^2(x)",
        r"\sin^{2}(x)",
        r"\log_2(8)",
        r"\log_{2}(8)",
        r"\operatorname{lcm}(2,3)",
        r"\text{ab}(2)",
        r"\cos(2)",
        "f(3)",
        "x_1(2)",
        "2x",
        r"5\pi",
        r"3\frac{1}{7}",
        r"\frac34",
        ")(",
        "}(",
    ],
)
def test_with_signs_keeps_text_that_is_no_product_of_numbers(text: str) -> None:
    assert with_signs(text) == text


def make_calls(times: int) -> int:
    def one() -> int:
        return 1

    return sum(one() for _ in range(times))


def loop_forever() -> None:
    for number in count():
        try:
            make_calls(number)
        except Exception:  # the budget must end the loop nevertheless
            continue


def test_within_stops_endless_work_that_catches_exceptions_and_restores_the_tracer() -> None:
    before = sys.gettrace()
    assert within(1000, lambda: make_calls(10)) == 10
    assert sys.gettrace() is before
    with pytest.raises(OutOfSteps):
        within(1000, loop_forever)
    assert sys.gettrace() is before
