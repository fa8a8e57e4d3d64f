"""Even shares compared with all possible divisions, and skipped steps."""

from __future__ import annotations

import itertools
import random
from pathlib import Path

import pytest
import torch

from contrastive_reasoning.distributed import SkippedSteps, even_shares, keeping_batch


def largest(costs: list[int], shares: list[list[int]]) -> int:
    return max(sum(costs[place] for place in share) for share in shares)


def test_even_shares_have_equal_size_and_never_increase_largest_cost() -> None:
    draw, moved = random.Random(0), 0
    for _ in range(300):
        count = draw.choice((1, 2, 3, 8))
        length = count * draw.randint(1, 12 if count != 2 else 5)
        costs = [draw.choice([0, draw.randint(0, 9), draw.randint(0, 50)]) for _ in range(length)]
        shares, every = even_shares(costs, count), [list(range(first, length, count)) for first in range(count)]
        assert sorted(place for share in shares for place in share) == list(range(length))
        assert [len(share) for share in shares] == [length // count] * count
        assert all(share == sorted(share) for share in shares)
        assert shares == every or largest(costs, shares) < largest(costs, every)
        moved += shares != every
        if count == 2:
            halves = itertools.combinations(range(length), length // 2)
            sums = (sum(costs[place] for place in half) for half in halves)
            assert largest(costs, shares) <= 4 / 3 * min(max(half, sum(costs) - half) for half in sums)
    assert moved > 100


def test_even_shares_separates_large_costs() -> None:
    assert even_shares([9, 1, 9, 1, 0, 5, 0, 5], 2) == [[0, 1, 4, 5], [2, 3, 6, 7]]
    assert even_shares([9, 9, 1, 1], 2) == [[0, 2], [1, 3]]
    with pytest.raises(ValueError, match="5 costs cannot be divided evenly over 2"):
        even_shares([1, 2, 3, 4, 5], 2)


def test_too_many_skipped_steps_raise_with_batch_file(tmp_path: Path) -> None:
    skipped = SkippedSteps(1, of="a head")
    skipped.add("loss is not finite")
    path = tmp_path / "skipped" / "step=000007.rank0.pt"
    message = "gradient is not finite, and 1 steps of a head were left out before: the run stops; "
    with pytest.raises(FloatingPointError) as error, keeping_batch(lambda: {"a": torch.ones(2)}, run=tmp_path, step=7):
        skipped.add("gradient is not finite")
    assert str(error.value).startswith(f"{message}the batch of step 7 is in {path}")
    assert torch.load(path, weights_only=True)["a"].equal(torch.ones(2))
    with pytest.raises(ValueError, match="max_skipped_steps must not be negative, got -1"):
        SkippedSteps(-1)
