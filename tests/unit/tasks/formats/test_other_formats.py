"""Plain answers, and formats tried in order."""

from __future__ import annotations

import pytest

from contrastive_reasoning.tasks.formats import BadRow, FirstFitting, MissingColumn, PlainAnswer, WorkedAnswer

PLAIN = PlainAnswer(question="Question", answer="Answer", instruction="Box it.")
WORKED = WorkedAnswer(question="question", answer="answer", instruction="Box it.")


def test_a_plain_answer_is_text() -> None:
    problem = PLAIN({"Question": " How many? ", "Answer": 142.0}, id="amc/3")
    assert (problem.id, problem.prompt, problem.answer) == ("amc/3", "How many?\nBox it.", "142")
    assert PLAIN({"Question": "Which?", "Answer": [0, 5]}, id="0").answer == "[0, 5]"


def test_the_first_format_that_fits_is_taken() -> None:
    either = FirstFitting(formats={"worked": WORKED, "plain": PLAIN})
    assert either({"Question": "How many?", "Answer": "7"}, id="0").answer == "7"
    assert either({"question": "How many?", "answer": "#### 8"}, id="0").answer == "8"
    assert hash(either) == hash(FirstFitting(formats={"worked": WORKED, "plain": PLAIN}))


def test_where_none_fits_every_missing_column_is_named() -> None:
    either = FirstFitting(formats={"worked": WORKED, "plain": PLAIN})
    with pytest.raises(MissingColumn, match="no column question or Question; there are problem, solution"):
        either({"problem": "", "solution": ""}, id="0")


def test_a_bad_row_is_not_tried_elsewhere() -> None:
    either = FirstFitting(formats={"worked": WORKED, "plain": PLAIN})
    with pytest.raises(BadRow, match="no result"):
        either({"question": "How many?", "answer": "8", "Question": "How many?", "Answer": "8"}, id="0")


def test_no_formats_are_refused() -> None:
    with pytest.raises(ValueError, match="at least one format"):
        FirstFitting(formats={})
