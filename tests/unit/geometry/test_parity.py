from __future__ import annotations

import math

import torch

from contrastive_reasoning.geometry import parity_accuracy, parity_of


def test_parity_is_of_the_sum_and_padding_does_not_count() -> None:
    assert parity_of(torch.tensor([[3, 4, -1], [3, 5, -1]])).tolist() == [True, False]
    assert parity_of(torch.tensor([46, 17])).tolist() == [False, True]


def test_parity_is_read_where_it_is_written_and_not_where_it_is_not() -> None:
    noise = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    parity = torch.arange(200) % 2 == 1
    written = noise.clone()
    written[:, 0] += 20 * parity
    assert parity_accuracy(written, parity, components=2, folds=5) == 1.0
    assert abs(parity_accuracy(noise, parity, components=2, folds=5) - 0.5) < 0.12


def test_a_missing_parity_is_nan() -> None:
    assert math.isnan(parity_accuracy(torch.randn(9, 3), torch.ones(9, dtype=torch.bool), components=2, folds=3))
