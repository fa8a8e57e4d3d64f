"""Choices: lettered options, the right one by letter, index, text or mark."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from contrastive_reasoning.tasks.formats import BadRow, MultipleChoice

FORMAT = MultipleChoice(question="question", options="choices.text", answer="key", shuffle=False, instruction="Box it.")
OPTIONS = ["bank", "library", "mall"]


def row(key: Any, options: Any = OPTIONS) -> dict[str, Any]:
    return {"question": "Where?", "choices": {"text": options}, "key": key}


@pytest.mark.parametrize("key", ["B", 1, "library", [0, 1, 0], [False, True, False]])
def test_every_way_to_name_the_right_one(key: Any) -> None:
    problem = FORMAT(row(key), id="0")
    assert problem.prompt == "Where?\n\nOptions:\nA. bank\nB. library\nC. mall\nBox it."
    assert problem.answer == "B"


@pytest.mark.parametrize("key", ["D", 3, -1, "park", [1, 1, 0], [0, 0, 0], None, ""])
def test_a_key_that_names_no_single_option(key: Any) -> None:
    with pytest.raises(BadRow, match="names no single one of 3 options"):
        FORMAT(row(key), id="0")


@pytest.mark.parametrize("options", [None, ["one"], "ABC"])
def test_no_options(options: Any) -> None:
    with pytest.raises(BadRow, match=r"choices.text must be a list"):
        FORMAT(row("A", options), id="0")


def test_shuffling_moves_the_letter_with_its_option() -> None:
    shuffled = replace(FORMAT, shuffle=True)
    golds = set()
    for number in range(40):
        asked = row([1, 0, 0]) | {"question": f"Where {number}?"}
        problem = shuffled(asked, id=str(number))
        assert f"\n{problem.answer}. bank\n" in f"{problem.prompt}\n"
        assert all(f". {option}\n" in problem.prompt for option in OPTIONS)
        assert problem == shuffled(asked, id=str(number))
        golds.add(problem.answer)
    assert golds == {"A", "B", "C"}
