"""Shares of concatenated parameters compared with a slow count, number by number."""

from __future__ import annotations

import random

import pytest
import torch
from torch import nn

from contrastive_reasoning.policies.sharding import most_in_a_share, shard_layers
from tests.unit.lightning_modules import grpo_kit


def slow_most_in_a_share(sizes: list[tuple[int, int]], ranks: int) -> int:
    """Assigns every number to a rank by itself; a rank holds each parameter of which it has a number."""
    owners = [index for index, (count, _) in enumerate(sizes) for _ in range(count)]
    while len(owners) % (2 * ranks):
        owners.append(-1)  # padding
    share = len(owners) // ranks
    return max(
        sum(sizes[index][1] for index in set(owners[rank * share : (rank + 1) * share]) - {-1}) for rank in range(ranks)
    )


def test_most_in_a_share_equals_slow_count() -> None:
    rng = random.Random(0)
    for _ in range(300):
        sizes = [
            (count, count * rng.choice((2, 4))) for count in (rng.randint(1, 40) for _ in range(rng.randint(1, 9)))
        ]
        ranks = rng.randint(1, 8)
        assert most_in_a_share(sizes, ranks) == slow_most_in_a_share(sizes, ranks), (sizes, ranks)


@pytest.mark.parametrize(("ranks", "most"), [(1, 120), (2, 120), (4, 90), (8, 100)])
def test_most_in_a_share_counts_split_embedding_whole(ranks: int, most: int) -> None:
    assert most_in_a_share([(90, 90), (10, 10), (10, 10), (10, 10)], ranks) == most


def test_shard_layers_requires_frozen_model_with_layers() -> None:
    backbone, device = grpo_kit.policy().backbone, torch.device("cpu")
    with pytest.raises(ValueError, match="frozen"):
        shard_layers(backbone, device)
    with pytest.raises(ValueError, match=r"layers.*Linear"):
        shard_layers(nn.Linear(2, 2).requires_grad_(False), device)
    before = dict(backbone.requires_grad_(False).named_parameters())
    shard_layers(backbone, device)
    assert all(parameter is before[name] for name, parameter in backbone.named_parameters()), "there is one process"
