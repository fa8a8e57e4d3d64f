"""A problem's identity and prompts, and the arguments that it rejects."""

from __future__ import annotations

import pickle

import pytest

from contrastive_reasoning.tasks.countdown.problem import (
    EXAMPLES,
    CountdownProblem,
    fill_template,
    problem_key,
    problem_prompt,
)
from contrastive_reasoning.tasks.countdown.trace import search_trace


def test_problem_id_does_not_depend_on_order_of_numbers() -> None:
    one, other = CountdownProblem((21, 16, 17, 26), 46), CountdownProblem(numbers=[26, 17, 16, 21], target=46)
    assert one.id == other.id == "countdown:16,17,21,26=46"
    assert one.key == problem_key((16, 17, 21, 26), 46)
    assert one.numbers == (21, 16, 17, 26)
    assert one.prompt != other.prompt
    assert one.answer == "46"
    assert len({one, pickle.loads(pickle.dumps(one))}) == 1
    assert one.fields == {"numbers": (21, 16, 17, 26), "target": 46, "style": "longproc", "source": "given"}


@pytest.mark.parametrize(
    ("style", "header"),
    [
        ("longproc", "# Search Procedure"),
        ("annotated", "<Search Procedure>"),
        ("released", "<Search Procedure>"),
    ],
)
def test_problem_prompt_contains_worked_examples_and_ends_with_problem(style: str, header: str) -> None:
    prompt = problem_prompt((5, 6, 7), 29, style=style)
    for numbers, target in EXAMPLES:
        assert search_trace(numbers, target, style=style).text in prompt
    assert f'Write the search under "{header}"' in prompt
    assert prompt.endswith("Numbers: [5, 6, 7]\nTarget: 29\n")


def test_fill_template_keeps_unknown_braces() -> None:
    filled = fill_template("{keep} {demonstration} | {nums} -> {target} {x}", (5, 6), 11, style="longproc")
    assert filled.startswith("{keep} # Example\nNumbers: [40, 19, 23, 7]\nTarget: 29\n\n# Search Procedure\n")
    assert filled.endswith("</Solution>\n | [5, 6] -> 11 {x}")


def test_fill_template_replaces_repeated_placeholders() -> None:
    assert fill_template("{target} of {nums}, {nums}!", (5, 6), 11, style="released") == "11 of [5, 6], [5, 6]!"


def test_fill_template_writes_examples_in_given_style() -> None:
    filled = fill_template("{nums}{demonstration}{target}", (5, 6), 11, style="released")
    for example in EXAMPLES:
        assert search_trace(*example, style="released").text in filled


@pytest.mark.parametrize("numbers", [(), (3, -1), (True, 2), (1.5, 2), ("3", 2)])
def test_invalid_numbers_and_style_are_rejected(numbers: tuple) -> None:
    with pytest.raises((ValueError, TypeError), match="numbers"):
        CountdownProblem(numbers, 3)
    with pytest.raises(ValueError, match=r"style.*'short'"):
        CountdownProblem((1, 2), 3, style="short")
