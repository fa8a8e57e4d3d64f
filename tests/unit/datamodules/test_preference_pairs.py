from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.countdown import CountdownProblem, verify
from datamodules.preference_pairs import PreferencePair, draw_pair


def pair(numbers: tuple[int, ...], target: int) -> PreferencePair:
    return draw_pair(CountdownProblem(numbers, target, style="direct"), random.Random(0))


def test_draw_pair_returns_correct_and_incorrect_play_and_a_prefix() -> None:
    two, three = pair((7, 3), 10), pair((7, 3, 20), 30)
    assert (two.chosen, two.prefix) == ("7+3=10", "")
    assert not verify(two.problem, two.rejected).correct
    assert three.prefix
    assert three.chosen.startswith(three.prefix + ";")


def test_draw_pair_rejects_problems_that_every_or_no_play_solves() -> None:
    with pytest.raises(ValueError, match="solve"):
        pair((0, 0), 0)
    with pytest.raises(ValueError, match=r"\[1, 1\].*50"):
        pair((1, 1), 50)
