"""The block cache against a list of tensors joined afresh."""

from __future__ import annotations

import torch

from contrastive_reasoning.rollout.cache import BlockCache


def test_positions_are_appended_and_rows_taken() -> None:
    generator = torch.Generator().manual_seed(0)
    cache = BlockCache(capacity=3)
    keys = torch.randn(2, 1, 3, 4, generator=generator)
    assert cache.get_seq_length() == 0
    assert torch.equal(cache.update(keys, -keys, 0)[0], keys)
    rows = torch.tensor([0, 0, 1])
    cache.take(rows, capacity=5)
    more = torch.randn(3, 1, 1, 4, generator=generator)
    found, values = cache.update(more, -more, 0)
    assert torch.equal(found, torch.cat([keys[rows], more], dim=2))
    assert torch.equal(values, -found)
    cache.take(torch.tensor([2]), capacity=5)
    last = torch.randn(1, 1, 1, 4, generator=generator)
    again, _ = cache.update(last, last, 0)
    assert torch.equal(again, torch.cat([found[2:], last], dim=2))
    assert (cache.get_seq_length(), cache.get_max_length()) == (5, 5)
