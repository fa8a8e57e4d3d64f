"""Factors side by side: multiplied, where math-verify by itself would add a whole number and a fraction."""

from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.answer.products import with_signs
from contrastive_reasoning.tasks.answer.spelling import plain
from contrastive_reasoning.tasks.answer.symbolic import parsed


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
def test_the_value(text: str, value: float) -> None:
    assert float(parsed(plain(text))) == value  # pyright: ignore[reportArgumentType]


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
def test_what_is_no_product_of_numbers_stays(text: str) -> None:
    assert with_signs(text) == text
