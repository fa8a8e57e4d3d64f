"""Similarities of single pairs, small distances, and the gradients at distance zero."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.losses import cosine, neg_l2, neg_l2_squared, of_pairs, similarities


def embeddings(*shape: int, seed: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("name", similarities)
def test_of_pairs_equals_diagonal(name: str) -> None:
    anchors, candidates = embeddings(4, 3, seed=0), embeddings(4, 3, seed=1)
    assert_close(of_pairs(similarities[name], anchors, candidates), similarities[name](anchors, candidates).diagonal())


@pytest.mark.parametrize("similarity", [neg_l2, neg_l2_squared])
def test_gradient_at_distance_zero_is_zero(similarity) -> None:
    anchors = embeddings(2, 4, seed=0).requires_grad_()
    distances = similarity(anchors, anchors.detach()).diagonal()
    assert torch.autograd.grad(distances.sum(), anchors)[0].eq(0).all()


def test_cosine_of_a_zero_vector_is_zero_with_a_finite_gradient() -> None:
    anchors = torch.zeros(1, 4, dtype=torch.float64, requires_grad=True)
    value = cosine(anchors, embeddings(3, 4, seed=0))
    assert value.eq(0).all()
    assert torch.autograd.grad(value.sum(), anchors)[0].isfinite().all()


def test_neg_l2_is_accurate_at_small_distances() -> None:
    anchors = torch.full((30, 8), 1000.0)
    candidates = anchors + 0.01
    expected = -0.01 * math.sqrt(8)
    assert_close(neg_l2(anchors, candidates), torch.full((30, 30), expected), rtol=1e-2, atol=0)
