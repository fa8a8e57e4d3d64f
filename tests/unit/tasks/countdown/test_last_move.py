"""Dead ends filled into their form are those written line by line, for numbers of every kind and both wordings."""

from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.countdown.last_move import dead_end, spelled_out
from contrastive_reasoning.tasks.countdown.wording import ANNOTATED, LONGPROC, Wording


@pytest.mark.parametrize("wording", [LONGPROC, ANNOTATED])
@pytest.mark.parametrize("level", [2, 6])
def test_form_is_short_for_the_lines(wording: Wording, level: int) -> None:
    rng = random.Random(5)
    edges = (0, 1, 2, 3, 44, 45, 999, 1000, 1998, 1999, 2000, 2500)
    pairs = [(a, b) for a in edges for b in edges] + [(rng.randrange(2000), rng.randrange(50)) for _ in range(200)]
    for first, second in pairs:
        filled, slow = dead_end(wording, level, first, second), spelled_out(wording, level, first, second)
        assert filled[:2] == slow[:2]
        allowed = {result for result in slow.results if result is not None}
        assert allowed <= set(filled.results)
        assert not {result for result in filled.results if isinstance(result, int) and result < 2000} - allowed
