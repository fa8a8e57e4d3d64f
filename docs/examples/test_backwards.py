"""Right, wrong and empty: every kind of answer has its verdict."""

import pytest

from contrastive_reasoning.tasks import Problem
from docs.examples.backwards import verify

LAMP = Problem(id="1", prompt="Spell lamp backwards.\n", answer="", fields={"word": "lamp"})


@pytest.mark.parametrize(
    ("completion", "verdict"),
    [
        ("pmal\nand more", True),
        ("palm", False),
        ("lamp", "spelled forwards"),
        (" \n", "nothing is written"),
    ],
)
def test_first_line_of_completion_determines_verdict(completion: str, verdict: bool | str) -> None:
    assert verify(LAMP, completion) == verdict
