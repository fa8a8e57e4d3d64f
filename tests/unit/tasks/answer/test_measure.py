r"""Questions that ask for a percentage or for dozens: the digits count, with or without the sign."""

from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.answer import in_asked_measure, verify_answer

ASKED = [
    "What percentage of the class is left?",
    "What percent of 50 is 10?",
    "After all that, what is the total percentage of red cars?",
    "Which percent is larger?",
    "By what percent did it rise?",
    "What is his success rate? Express your answer as a percentage, but do not include the percent sign.",
]
NOT_ASKED = [
    "The shop takes 20 percent off. What does it cost?",
    "What is 20% of 50?",
    "What is 20 percent of 50?",
    "What is twenty percent of 50?",
    "What is twenty-five percent of 50?",
    "How much is the price with 20 percent discount?",
]


def right(question: str, gold: str, answer: str) -> bool:
    pair = in_asked_measure(question, gold, rf"so \boxed{{{answer}}}")
    return pair is not None and verify_answer(*pair).correct


@pytest.mark.parametrize("question", ASKED)
def test_percent_sign_is_optional_if_question_asks_for_percentage(question: str) -> None:
    for answer in (r"20\%", "20%", "20pct", "20Percent", r"20 \text{ percent}", r"20\text{ percentage points}"):
        assert right(question, "20", answer)
    assert right(question, r"25\%", "25")
    assert right(question, "32.5", r"32.5\%")
    assert not right(question, "20", r"0.2\%")
    assert not right(question, "20", r"21\%")
    assert not right(question, "20", r"20\% \text{ or } 30\%")
    for answer in ("2%0", r"2\%0", "%2%0%", "2 percent 0", "2%.0"):
        assert not right(question, "20", answer), "its digits are not those of one number"
    assert not right(question, "2.5", "2% 1/2")
    assert not right(question, r"\frac{5}{2}", r"\f%rac{5}{2}")
    assert not right(question, "2.5", r"2\%\frac{1}{2}")


@pytest.mark.parametrize("question", ASKED)
def test_in_asked_measure_returns_none_without_comparable_pair(question: str) -> None:
    assert in_asked_measure(question, "20", r"\boxed{0.2}") is None
    assert in_asked_measure(question, r"20\%", r"\boxed{20\%}") is None
    assert in_asked_measure(question, "A", r"\boxed{20\%}") is None
    assert in_asked_measure(question, "20", "no answer") is None


@pytest.mark.parametrize("question", NOT_ASKED)
def test_in_asked_measure_returns_none_if_no_percentage_is_asked_for(question: str) -> None:
    assert in_asked_measure(question, "20", r"\boxed{20\%}") is None


def test_dozen_is_optional_if_question_asks_for_dozens() -> None:
    question = "How many dozens of eggs does she sell?"
    assert right(question, "3", r"3 \text{ dozen}")
    assert right(question, "3", r"3 \text{ dozens of eggs}")
    assert right(question, "3", "3dozen")
    assert not right(question, "36", "3 dozen 6")
    assert not right(question, "36", r"3 \text{ dozen}")
    assert in_asked_measure("How many eggs?", "3", r"\boxed{3 \text{ dozen}}") is None
