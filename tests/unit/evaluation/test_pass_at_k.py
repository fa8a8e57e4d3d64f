"""pass@k against trying every choice of k completions."""

from __future__ import annotations

from itertools import combinations

import pytest

from contrastive_reasoning.evaluation import pass_at_k


def test_it_is_the_share_of_choices_that_hold_a_correct_one() -> None:
    for samples in range(1, 8):
        for correct in range(samples + 1):
            for k in range(1, samples + 1):
                choices = list(combinations([i < correct for i in range(samples)], k))
                assert pass_at_k(samples, correct, k) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)


def test_known_values() -> None:
    assert pass_at_k(8, 2, 1) == 0.25
    assert pass_at_k(8, 1, 8) == 1.0
    assert pass_at_k(1000, 3, 100) == pytest.approx(1 - (900 * 899 * 898) / (1000 * 999 * 998))


@pytest.mark.parametrize(("samples", "correct", "k"), [(4, 5, 1), (4, -1, 1), (4, 2, 5), (4, 2, 0)])
def test_impossible_counts_are_refused(samples: int, correct: int, k: int) -> None:
    with pytest.raises(ValueError, match="got"):
        pass_at_k(samples, correct, k)
