from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.answer import verify_choice
from contrastive_reasoning.tasks.base import Verdict


@pytest.mark.parametrize(
    "answer",
    [
        "B",
        "b",
        "(B)",
        "[B]",
        "B.",
        "B)",
        r"\text{B}",
        r"\textbf{(B)}",
        r"\mathrm{B}",
        "$B$",
        "{B}",
        "B. a bank",
        "(B) a bank",
        "B: a bank, or so",
        r"\text{B. a bank}",
        "B - a bank",
        "B. vitamin C",
        "B. x^2 + y",
        "Option B",
        "answer: B",
        r"\boxed{B}",
    ],
)
def test_right(answer: str) -> None:
    assert verify_choice("B", rf"\boxed{{{answer}}}") == Verdict(status="ok", reason="")


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        ("A", "wrong"),
        ("(C)", "wrong"),
        ("AB", "unparsed"),
        ("A, B", "unparsed"),
        ("A or B", "unparsed"),
        ("B or C", "unparsed"),
        ("B. or C.", "unparsed"),
        ("B, C", "unparsed"),
        ("B, L", "unparsed"),
        ("B) a bank, T) a mall", "unparsed"),
        ("B, A", "unparsed"),
        ("B. or A", "unparsed"),
        ("B) (A)", "unparsed"),
        (r"B \text{ or } C", "unparsed"),
        ("B) a bank, D) a mall", "unparsed"),
        ("bank", "unparsed"),
        ("a bank", "unparsed"),
        ("A revolving door", "unparsed"),
        ("eg, A, B, C, D", "unparsed"),
        ("2", "unparsed"),
        ("Ｂ", "unparsed"),
        ("", "unparsed"),
    ],
)
def test_not_right(answer: str, status: str) -> None:
    verdict = verify_choice("B", rf"\boxed{{{answer}}}")
    assert verdict.status == status
    assert verdict.reason


def test_without_a_box() -> None:
    assert verify_choice("B", "So the answer is (B).").correct
    assert verify_choice("B", "It must be B").reason == "no boxed answer"
    assert verify_choice("B", r"<think>\boxed{B}</think>").status == "unparsed"


def test_gold_must_be_a_letter() -> None:
    assert verify_choice("(b)", r"\boxed{B}").correct
    assert verify_choice("bank", r"\boxed{B}") == Verdict(status="error", reason="no gold letter")
