from __future__ import annotations

import random
from fractions import Fraction

import pytest

from contrastive_reasoning.tasks.answer.number import MAX_DIGITS, MAX_POWER, read_number
from contrastive_reasoning.tasks.answer.spelling import plain


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("142.0", 142),
        ("007", 7),
        ("+18.0", 18),
        ("- 3", -3),
        (".5", Fraction(1, 2)),
        ("5.", 5),
        ("1,234,567.5", Fraction(2469135, 2)),
        (r"10,\!080", 10080),
        (r"1{,}008{,}016", 1008016),
        (r"240\,000", 240000),
        ("240 000", 240000),
        (r"\$18.90", Fraction(189, 10)),
        ("$18.75$", Fraction(75, 4)),
        (r"\frac{-3}{4}", Fraction(-3, 4)),
        (r"\dfrac{3}{-4}", Fraction(-3, 4)),
        (r"\frac12", Fraction(1, 2)),
        (r"-\frac 34", Fraction(-3, 4)),
        (r"\frac{270}7", Fraction(270, 7)),
        (r"\frac{1,000}{3}", Fraction(1000, 3)),
        ("-9/15", Fraction(-3, 5)),
        ("0.5/2", Fraction(1, 4)),
        (r"1\frac{4}{5}", Fraction(9, 5)),
        ("-1 4/5", Fraction(-9, 5)),
        (r"9\%", Fraction(9, 100)),
        ("40 percent", Fraction(2, 5)),
        ("3 million", 3_000_000),
        (r"\$2.5\text{ million dollars}", 2_500_000),
        ("1.28e-06", Fraction(128, 10**8)),
        ("-6e+25", -6 * 10**25),
        (r"1.5 \times 10^{-3}", Fraction(3, 2000)),
        (r"8 \cdot 10^2", 800),
        ("10^{-2}", Fraction(1, 100)),
        (r"0.1\overline{6}", Fraction(1, 6)),
        (r"\approx 3.21", Fraction(321, 100)),
        (r"\text{3}", 3),
        ("{{3}}", 3),
        (r"\mathbf{3}.", 3),
        (r"\left(3\right", None),
        ("", None),
        (".", None),
        ("1,23", None),
        ("3,4", None),
        ("1 2 3", None),
        ("2/0", None),
        (r"1\frac{-4}{5}", None),
        (r"\frac{1}10", None),
        ("--3", None),
        ("9^9", None),
        ("7!", None),
        ("1_000", None),
        ("0x10", None),
        ("inf", None),
        ("nan", None),
        ("３", 3),
        ("٣", None),
        ("3²", None),
        ("2x", None),
        ("7 or 8", None),
        ("7 8", None),
        ("7 eight", None),
        ("7\x00", None),
        ("9" * (MAX_DIGITS + 1), None),
        (f"1e{MAX_POWER + 1}", None),
        (f"10^{{{MAX_POWER + 1}}}", None),
    ],
)
def test_read_number_returns_exact_value(text: str, value: Fraction | int | None) -> None:
    number = read_number(plain(text))
    assert (number and number.value) == value


@pytest.mark.parametrize(
    ("text", "value", "unit"),
    [
        ("3 apples", 3, "apple"),
        ("61hours", 61, "h"),
        ("9 cm", 9, "cm"),
        ("9cm^2", 9, "cm^2"),
        (r"15\mbox{ cm}^2", 15, "cm^2"),
        (r"3\text{ m}", 3, "m"),
        (r"34\text{ sq. units}", 34, "unit^2"),
        (r"145^\circ", 145, "deg"),
        (r"145^{\circ}.", 145, "deg"),
        (r"\frac{11}{15}\text{ days}", Fraction(11, 15), "day"),
        (r"1.85\ \text{USD}", Fraction(37, 20), "dollar"),
        ("5 inches", 5, "in"),
    ],
)
def test_read_number_returns_value_and_unit(text: str, value: Fraction | int, unit: str) -> None:
    assert read_number(plain(text)) == (value, unit)


@pytest.mark.parametrize("text", ["2m", "3xy", "3 x", r"\pi h", "3 sin x", "3 plus 4", "3 to 4", "3 if n is even"])
def test_read_number_rejects_variables_and_words_as_unit(text: str) -> None:
    assert read_number(plain(text)) is None


def test_read_number_reads_numbers_formatted_by_python() -> None:
    draw = random.Random(0)
    for _ in range(500):
        whole, places = draw.randint(-(10**9), 10**9), draw.randint(0, 6)
        value = Fraction(whole, 10**places)
        decimal = f"{whole / 10**places:,.{places}f}"
        float_text = repr(float(whole))
        fraction = rf"\frac{{{value.numerator}}}{{{value.denominator}}}"
        for text, expected in ((decimal, value), (fraction, value), (float_text, whole), (str(value), value)):
            number = read_number(plain(text))
            assert number is not None, text
            assert number.value == expected, text
