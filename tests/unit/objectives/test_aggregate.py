from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from contrastive_reasoning.objectives import (
    Aggregation,
    ConstantLength,
    SeqMeanTokenMean,
    SeqMeanTokenSum,
    TokenMean,
)

MASK = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [0, 0, 0, 0], [1, 1, 0, 0]]).bool()
LOSSES = torch.rand(4, 4, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
ROWS = [[value.item() for value, kept in zip(*pair, strict=True) if kept] for pair in zip(LOSSES, MASK, strict=True)]
WRITTEN = [row for row in ROWS if row]  # a rollout without a token is no rollout

CASES: list[tuple[Aggregation, Callable[[], float]]] = [
    (TokenMean(), lambda: sum(sum(row) for row in ROWS) / 6),
    (SeqMeanTokenMean(), lambda: sum(sum(row) / len(row) for row in WRITTEN) / 3),
    (SeqMeanTokenSum(), lambda: sum(sum(row) for row in WRITTEN) / 3),
    (ConstantLength(length=10), lambda: sum(sum(row) / 10 for row in WRITTEN) / 3),
]


@pytest.mark.parametrize(("aggregation", "expected"), CASES)
def test_against_loops(aggregation: Aggregation, expected: Callable[[], float]) -> None:
    weights = aggregation.weights(MASK, rows=3.0, tokens=6.0)
    assert (weights * LOSSES).sum().item() == pytest.approx(expected(), rel=1e-12)
    assert not weights[~MASK].any()


@pytest.mark.parametrize(("aggregation", "_"), CASES)
def test_a_row_weighs_the_same_in_every_split(aggregation: Aggregation, _: object) -> None:
    whole = aggregation.weights(MASK, rows=3.0, tokens=6.0)
    for row in range(4):
        assert torch.equal(aggregation.weights(MASK[row : row + 1], rows=3.0, tokens=6.0)[0], whole[row])


def test_length_is_checked() -> None:
    with pytest.raises(ValueError, match="length must be at least 1, got 0"):
        ConstantLength(length=0)
