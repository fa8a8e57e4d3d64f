from __future__ import annotations

from typing import Any

import pytest

from contrastive_reasoning.tasks.formats import BadRow, MissingColumn, RowTemplate

ROW = {"word": "lamp", "more": {"count": 3.0}, "key": "a7"}


def posed(prompt: str, row: dict[str, Any] = ROW, *, answer: str | None = None, id: str | None = None) -> Any:
    return RowTemplate(prompt=prompt, answer=answer, id=id)(row, id="words/train/0")


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        ("Spell {word} backwards.\n", "Spell lamp backwards.\n"),
        ("{word}, {more.count} times: {word}", "lamp, 3 times: lamp"),
        (r"{word}? Answer in \boxed{}.", r"lamp? Answer in \boxed{}."),
        ("{{word}} is {word}", "{word} is lamp"),
    ],
)
def test_columns_in_braces_are_filled_in_and_the_rest_stays(template: str, prompt: str) -> None:
    assert posed(template).prompt == prompt


def test_what_a_row_holds_is_no_template() -> None:
    assert posed("{word}", {"word": r"{key} \1 {{"}).prompt == r"{key} \1 {{"


def test_the_row_is_the_fields_and_the_answer_may_be_missing() -> None:
    assert posed("{word}").fields == ROW
    assert posed("{word}").answer == ""
    assert posed("{word}", answer="more.count").answer == "3"


def test_an_id_of_its_own_takes_the_place_of_the_rows_number() -> None:
    assert posed("{word}").id == "words/train/0"
    assert posed("{word}", id="key").id == "words/train/a7"


def test_a_template_without_a_column_is_refused() -> None:
    with pytest.raises(ValueError, match=r"format.prompt must name a column in braces, .* got 'Spell {{word}}'"):
        RowTemplate(prompt="Spell {{word}}", answer=None, id=None)


@pytest.mark.parametrize("part", [{"prompt": "{wrd}"}, {"prompt": "{word}", "answer": "wrd"}])
def test_a_missing_column_is_named_with_those_there_are(part: dict[str, Any]) -> None:
    with pytest.raises(MissingColumn, match=r"^no column wrd; there are word, more, key$"):
        posed(**part)


def test_an_empty_column_is_a_bad_row() -> None:
    with pytest.raises(BadRow, match=r"^word is empty$"):
        posed("{word}", {"word": " "})
