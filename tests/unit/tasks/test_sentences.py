"""Sentences as steps: their characters, and nothing but their characters."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from contrastive_reasoning.tasks.sentences import MAX_STEPS, sentence_steps


def pieces(text: str) -> list[str]:
    return [text[step.start : step.end] for step in sentence_steps(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2+3 = 5. So 5·2 = 10.\nThe answer is 10.", ["2+3 = 5.", "So 5·2 = 10.", "The answer is 10."]),
        ("It costs 3.50 dollars. $x = 2$ then.", ["It costs 3.50 dollars.", "$x = 2$ then."]),
        ("a\n\n  b  \n\t\nc", ["a", "b", "c"]),
        (r"Right! \boxed{5} Is it? Yes.", ["Right!", r"\boxed{5} Is it?", "Yes."]),
        ("half a sentence", ["half a sentence"]),
        (" \n\n ", []),
        ("", []),
    ],
)
def test_where_steps_begin_and_end(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected


def test_steps_are_in_order_and_hold_every_character_that_is_not_blank() -> None:
    rng = random.Random(0)
    for _ in range(200):
        text = "".join(rng.choice("aB1.!? \n\t$\\ü") for _ in range(rng.randrange(60)))
        steps = sentence_steps(text)
        assert [step.state for step in steps] == list(range(1, len(steps) + 1))
        assert all(step.legal and step.start < step.end for step in steps)
        assert all(before.end <= after.start for before, after in pairwise(steps))
        kept = "".join(text[step.start : step.end] for step in steps)
        assert "".join(kept.split()) == "".join(text.split())


def test_endless_text_has_so_many_steps() -> None:
    assert len(sentence_steps("A.\n" * (MAX_STEPS + 10))) == MAX_STEPS
