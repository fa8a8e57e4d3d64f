r"""The answer verifier against math-verify, on completions that are designed to mislead a verifier.

The compared column is ``math_verify_raw``, the verdict of math-verify on the whole completion. It is the only recorded
column that evaluates the mathematics. Where it is wrong, the rules below define the expected verdict, each for a
notation (``kind``), never for a single row. The other columns are not compared. ``clipo_conrl``, the score with which
the published models were trained, drops the text after a ``\text``, reads 9% as 9 and rejects unreduced fractions. The
others only compare strings or the first number.
"""

from __future__ import annotations

import re
from fractions import Fraction
from typing import Any

import pytest

from contrastive_reasoning.tasks.answer import extract_answer, verify_answer

pytestmark = pytest.mark.golden_rows("math_verify.jsonl")

WRONG = {
    "think_box_only_inside": "a box among the thoughts is no answer; after them there is none",
    "unclosed_box": "a box that is not closed was cut off, and may have gone on",
    "boxed_or": "two answers at once",
    "empty_box": "no answer",
    "pct_removed": "40 is not 40%",
}
"""Kinds of completions that are always wrong."""
RIGHT = {
    "trailing_period_in_box": "a full stop ends the sentence, not the number",
    "text_wrapped": "a formula set as text is the same formula",
    "thin_space": "a thin space between groups of three digits is how they are written by the SI",
    "braced": "braces in TeX are not seen",
    "mixed_space": "a mixed number with a blank, 1 1/2",
    "hash_answer": "the last line gives the answer after ####, in whatever form",
    "no_box_plain": "the last line says what the answer is, in whatever form",
    "no_box_math": "the last line says what the answer is, in whatever form",
    "answer_colon": "the last line says what the answer is, in whatever form",
    "spaces_removed": "spaces in a formula are not seen",
    "no_spaces": "spaces in a formula are not seen",
    "list_no_space": "spaces in a formula are not seen",
    "expr_paren": "brackets around the whole",
    "expr_plus_zero": "nothing is added",
    "times_one": "nothing is multiplied",
    "list_set": "a list in the brackets of a set",
    "deg_word": "the unit as a word",
    "text_bare": "words without the command that sets them upright",
    "text_upper": "words in capitals",
    "text_lower": "words in small letters",
}
"""Kinds that write the gold answer in another notation, which math-verify reads only in part."""


def is_rounded(row: dict[str, Any]) -> bool:
    """Whether the decimal number in the box differs from the fraction from which it was made."""
    top, bottom = re.findall("[0-9]+", row["gold"])
    decimal = re.search(r"boxed\{-?([0-9.]+)\}", row["completion"])
    return decimal is not None and Fraction(decimal[1]) != Fraction(int(top), int(bottom))


def is_right(row: dict[str, Any]) -> bool:
    if row["kind"] in WRONG:
        return False
    if row["kind"] == "decimal" and is_rounded(row):
        return False  # math-verify compares decimals to six places, ours are exact
    if row["kind"] == "brackets_swapped" and row["gold"].count(",") == 1:
        return False  # (3, -1) is a point, [3, -1] is not; math-verify distinguishes them only if they can be intervals
    if row["kind"] == "x_equals" and "=" not in row["gold"]:
        return True  # a name before the answer is not part of it; before an equation it makes another equation
    return row["kind"] in RIGHT or row["scores"]["math_verify_raw"] == 1


def test_verify_answer_gives_the_expected_verdict(golden_row: dict[str, Any]) -> None:
    verdict = verify_answer(golden_row["gold"], golden_row["completion"])
    assert verdict.correct == is_right(golden_row), verdict
    assert bool(verdict.reason) != verdict.correct
    assert verdict.status in ("ok", "wrong", "unparsed"), verdict


def test_gold_answer_in_a_box_is_correct(golden_row: dict[str, Any]) -> None:
    assert verify_answer(golden_row["gold"], rf"\boxed{{{golden_row['gold']}}}").correct


def test_extract_answer_contains_the_last_box_found_by_clipo(golden_row: dict[str, Any]) -> None:
    """Our extraction contains what CLIPO's extraction finds in the last box, possibly inside an outer box."""
    theirs, ours = golden_row["clipo_extracted"], extract_answer(golden_row["completion"])
    if not theirs or golden_row["kind"] in WRONG:
        pytest.skip("it finds none, or there is no answer to find")
    assert ours is not None
    assert theirs.strip() in ours
