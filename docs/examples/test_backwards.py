"""Right, wrong and empty: every kind of answer has its verdict."""

import pytest

from contrastive_reasoning.tasks import Problem
from docs.examples.backwards import verify

LAMP = Problem(id="1", prompt="Spell lamp backwards.\n", answer="", fields={"word": "lamp"})


@pytest.mark.parametrize(
    ("completion", "said"),
    [
        ("pmal\nand more", True),
        ("palm", False),
        ("lamp", "spelled forwards"),
        (" \n", "nothing is written"),
    ],
)
def test_a_completion_is_judged_by_its_first_line(completion: str, said: bool | str) -> None:
    assert verify(LAMP, completion) == said
