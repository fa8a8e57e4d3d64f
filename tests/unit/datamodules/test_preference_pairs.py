from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.countdown import CountdownProblem, verify
from datamodules.preference_pairs import draw_pair


def test_two_numbers_make_a_pair_whose_beginning_is_empty() -> None:
    problem = CountdownProblem((7, 3), 10, style="direct")
    pair = draw_pair(problem, random.Random(0))
    assert pair.chosen == "7+3=10"
    assert pair.prefix == ""
    assert not verify(problem, pair.rejected).correct


def test_three_numbers_begin_with_their_first_move() -> None:
    pair = draw_pair(CountdownProblem((7, 3, 20), 30, style="direct"), random.Random(0))
    assert pair.prefix
    assert pair.chosen.startswith(pair.prefix + ";")


def test_a_problem_that_every_play_solves_is_refused() -> None:
    with pytest.raises(ValueError, match="random plays all solve"):
        draw_pair(CountdownProblem((0, 0), 0, style="direct"), random.Random(0))


def test_a_problem_that_no_play_solves_is_refused() -> None:
    with pytest.raises(ValueError, match=r"a problem that can be solved, got \[1, 1\] to 50"):
        draw_pair(CountdownProblem((1, 1), 50, style="direct"), random.Random(0))
