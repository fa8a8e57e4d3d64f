from __future__ import annotations

from itertools import combinations
from math import exp, log

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.geometry import alignment, effective_rank, uniformity

POINTS = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_alignment_is_zero_for_the_same_direction_and_four_for_the_opposite() -> None:
    assert_close(alignment(POINTS, 3 * POINTS), torch.tensor(0.0, dtype=torch.float64))
    assert_close(alignment(POINTS, -POINTS), torch.tensor(4.0, dtype=torch.float64))


def test_uniformity_matches_formula_over_pairs() -> None:
    unit = [(row / row.norm()).tolist() for row in POINTS]
    terms = [exp(-2 * sum((a - b) ** 2 for a, b in zip(x, y, strict=True))) for x, y in combinations(unit, 2)]
    assert uniformity(POINTS).item() == pytest.approx(log(sum(terms) / len(terms)), abs=1e-12)
    with pytest.raises(ValueError, match="at least two points, got 1"):
        uniformity(POINTS[:1])


def test_effective_rank_counts_directions_in_use() -> None:
    square = torch.tensor([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]])
    assert_close(effective_rank(square), torch.tensor(2.0))
    line = torch.tensor([[1.0, 2, 3], [2, 4, 6], [5, 10, 15]])
    assert_close(effective_rank(line), torch.tensor(1.0), rtol=1e-3, atol=1e-3)
