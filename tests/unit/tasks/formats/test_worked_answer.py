"""Worked answers: the result after the last mark."""

from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.formats import BadRow, MissingColumn, WorkedAnswer

FORMAT = WorkedAnswer(question="question", answer="answer", instruction="Box it.")


@pytest.mark.parametrize(
    ("worked", "answer"),
    [
        ("48/2 = <<48/2=24>>24 clips.\n48+24 = 72\n#### 72", "72"),
        ("#### 1 and then\n####   -3 ", "-3"),
        ("#### 1,234,567", "1234567"),
        ("#### 12.50", "12.50"),
        ("#### 1,23", "1,23"),
        ("#### (1,200, 3)", "(1200, 3)"),
    ],
)
def test_the_result_is_the_answer(worked: str, answer: str) -> None:
    problem = FORMAT({"question": "How many?", "answer": worked}, id="set/0")
    assert (problem.id, problem.prompt, problem.answer) == ("set/0", "How many?\nBox it.", answer)


@pytest.mark.parametrize("worked", ["72", "so it is 72 ####", "####"])
def test_no_result_is_a_bad_row(worked: str) -> None:
    with pytest.raises(BadRow, match="no result after ####"):
        FORMAT({"question": "How many?", "answer": worked}, id="0")


def test_a_missing_column_is_named() -> None:
    with pytest.raises(MissingColumn, match="no column answer; there are question, solution"):
        FORMAT({"question": "How many?", "solution": "#### 1"}, id="0")
