"""Every loss against its slow, obvious version: plain loops, one pair at a time, in float64."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.losses import (
    BackwardInfoNCE,
    BalancedBinaryNCE,
    BinaryNCE,
    InfoNCE,
    SoftNearestNeighbour,
    SupCon,
    SupConIn,
    SymmetricInfoNCE,
    WithPenalty,
    binary_nce,
    binary_nce_balanced,
    info_nce,
    info_nce_backward,
    info_nce_pairs,
    info_nce_symmetric,
    logsumexp_penalty,
    soft_nearest_neighbour,
    supcon,
    supcon_in,
)

A, C = 5, 6
OVER_MANY = [supcon, supcon_in, soft_nearest_neighbour]


def example() -> tuple[Tensor, Tensor, Tensor]:
    """Anchors 0–3 have one positive each; anchor 4 has candidates but no positive. Some pairs are not candidates."""
    generator = torch.Generator().manual_seed(0)
    logits = 3 * torch.randn(A, C, generator=generator, dtype=torch.float64)
    positive = torch.zeros(A, C, dtype=torch.bool)
    positive[range(4), [0, 1, 2, 4]] = True
    candidate = positive | (torch.rand(A, C, generator=generator) < 0.7)
    return logits.requires_grad_(), positive, candidate


def many_positives() -> tuple[Tensor, Tensor, Tensor]:
    logits, positive, candidate = example()
    positive[0, 3] = positive[1, 5] = positive[1, 0] = True
    return logits, positive, candidate | positive


def loop_info_nce(logits: Tensor, positive: Tensor, candidate: Tensor) -> Tensor:
    logits, losses = logits.detach(), []
    for i in range(logits.shape[0]):
        total = sum(math.exp(logits[i, j]) for j in range(logits.shape[1]) if candidate[i, j])
        own = [math.exp(logits[i, j]) for j in range(logits.shape[1]) if positive[i, j]]
        losses.append(-math.log(own[0] / total) if own else 0.0)
    return torch.tensor(losses, dtype=torch.float64)


def loop_binary(logits: Tensor, positive: Tensor, candidate: Tensor) -> dict[tuple[int, int], float]:
    logits, losses = logits.detach(), {}
    for i in range(logits.shape[0]):
        for j in range(logits.shape[1]):
            if candidate[i, j]:
                p = 1 / (1 + math.exp(-logits[i, j]))
                losses[i, j] = -math.log(p if positive[i, j] else 1 - p)
    return losses


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def test_info_nce_skips_anchor_without_positive() -> None:
    logits, positive, candidate = example()
    losses = info_nce(logits, positive, candidate)
    assert_close(losses, loop_info_nce(logits, positive, candidate), rtol=1e-10, atol=0)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert gradient[4].eq(0).all()
    assert gradient[~candidate].eq(0).all()


def test_info_nce_backward_uses_anchor_without_positive_as_negative() -> None:
    logits, positive, candidate = example()
    losses = info_nce_backward(logits, positive, candidate)
    assert_close(losses, loop_info_nce(logits.T, positive.T, candidate.T), rtol=1e-10, atol=0)
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    in_a_reached_column = candidate[4] & positive.any(dim=0)
    assert in_a_reached_column.any()
    assert gradient[4][in_a_reached_column].gt(0).all()


def loop_pairs(logits: Tensor, positive: Tensor, candidate: Tensor) -> dict[tuple[int, int], float]:
    logits, losses = logits.detach(), {}
    for i, p in positive.nonzero().tolist():
        own = math.exp(logits[i, p])
        negative = [math.exp(logits[i, n]) for n in range(logits.shape[1]) if candidate[i, n] and not positive[i, n]]
        losses[i, p] = -math.log(own / (own + sum(negative)))
    return losses


def test_info_nce_pairs_contrasts_each_positive_with_the_negatives_alone() -> None:
    logits, positive, candidate = many_positives()
    expected = loop_pairs(logits, positive, candidate)
    losses = info_nce_pairs(logits, positive, candidate)
    for i in range(A):
        for j in range(C):
            assert losses[i, j].item() == pytest.approx(expected.get((i, j), 0.0), rel=1e-10)
    backward = loop_pairs(logits.T, positive.T, candidate.T)
    halves = [(expected[i, p] + backward[p, i]) / 2 for i, p in expected]
    assert info_nce_symmetric(logits, positive, candidate).item() == pytest.approx(mean(halves), rel=1e-10)


def test_info_nce_pairs_without_negatives_is_zero_and_backpropagates() -> None:
    logits = torch.tensor([[1.0, 2.0], [0.5, -50.0]], dtype=torch.float64, requires_grad=True)
    positive = torch.tensor([[True, True], [True, False]])
    losses = info_nce_pairs(logits, positive)
    assert losses[0].eq(0).all()
    (gradient,) = torch.autograd.grad(losses.sum(), logits)
    assert gradient.isfinite().all()
    assert gradient[0].eq(0).all()


def test_binary_nce_matches_loops() -> None:
    logits, positive, candidate = many_positives()
    expected = loop_binary(logits, positive, candidate)
    losses = binary_nce(logits, positive, candidate)
    for i in range(A):
        for j in range(C):
            assert losses[i, j].item() == pytest.approx(expected.get((i, j), 0.0), rel=1e-10)
    halves = [mean([loss for at, loss in expected.items() if positive[at] == kind]) for kind in (True, False)]
    assert binary_nce_balanced(logits, positive, candidate).item() == pytest.approx(sum(halves), rel=1e-10)


def test_logsumexp_penalty_matches_loops() -> None:
    logits, _, candidate = example()
    candidate[2] = False
    values = logits.tolist()
    expected = [
        math.log(sum(math.exp(values[i][j]) for j in range(C) if candidate[i, j])) ** 2 if i != 2 else 0.0
        for i in range(A)
    ]
    penalty = logsumexp_penalty(logits, candidate)
    assert_close(penalty, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=0)
    assert torch.autograd.grad(penalty.sum(), logits)[0].isfinite().all()


def marked(row: Tensor) -> list[int]:
    return row.nonzero().flatten().tolist()


def per_anchor(name: str, scores: list[float], positives: list[int], candidates: list[int]) -> float:
    total = sum(math.exp(scores[k]) for k in candidates)
    shares = [math.exp(scores[p]) / total for p in positives]
    if not shares:
        return 0.0
    return {
        "supcon": mean([-math.log(share) for share in shares]),
        "supcon_in": -math.log(mean(shares)),
        "soft_nearest_neighbour": -math.log(sum(shares)),
    }[name]


@pytest.mark.parametrize("loss", OVER_MANY)
def test_losses_over_many_positives_match_loops(loss: Callable[..., Tensor]) -> None:
    logits, positive, candidate = many_positives()
    expected = [
        per_anchor(loss.__name__, logits[i].tolist(), marked(positive[i]), marked(candidate[i])) for i in range(A)
    ]
    losses = loss(logits, positive, candidate)
    assert_close(losses, torch.tensor(expected, dtype=torch.float64), rtol=1e-10, atol=1e-14)
    assert torch.autograd.grad(losses.sum(), logits)[0][4].eq(0).all()


@pytest.mark.parametrize(
    "loss",
    [info_nce, info_nce_backward, info_nce_symmetric, binary_nce, binary_nce_balanced, *OVER_MANY],
)
def test_gradients_match_finite_differences(loss: Callable[..., Tensor]) -> None:
    logits, positive, candidate = example()
    assert torch.autograd.gradcheck(lambda x: loss(x, positive, candidate), (logits,))


CLASSES = [InfoNCE, BackwardInfoNCE, SymmetricInfoNCE, BinaryNCE, BalancedBinaryNCE, SupCon, SupConIn]
CLASSES += [SoftNearestNeighbour]


@pytest.mark.parametrize("kind", CLASSES)
def test_loss_classes_divide_scores_by_temperature(kind: type) -> None:
    scores, positive, candidate = example()
    hot, unit = kind(temperature=0.5), kind(temperature=1.0)
    assert_close(hot(scores, positive, candidate), unit(scores / 0.5, positive, candidate))
    with pytest.raises(ValueError, match=r"temperature.*0"):
        kind(temperature=0.0)


@pytest.mark.parametrize("kind", CLASSES)
def test_batch_without_pairs_has_zero_loss_and_gradient(kind: type) -> None:
    scores = torch.randn(3, 4, generator=torch.Generator().manual_seed(0)).requires_grad_()
    nothing = torch.zeros(3, 4, dtype=torch.bool)
    loss = WithPenalty(loss=kind(temperature=0.1), temperature=0.1, weight=0.01)(scores, nothing, nothing)
    assert loss.item() == 0.0
    assert torch.autograd.grad(loss, scores)[0].eq(0).all()


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("scale", [1e4, 1e30])
def test_huge_scores_stay_finite(kind: type, scale: float) -> None:
    scores, positive, candidate = example()
    scores = (scores.detach().float() * scale).requires_grad_()
    loss = kind(temperature=1.0)(scores, positive, candidate)
    assert loss.isfinite()
    assert torch.autograd.grad(loss, scores)[0].isfinite().all()


def test_penalty_adds_weighted_mean_over_anchors_with_candidates() -> None:
    scores, positive, candidate = example()
    candidate[4] = False
    loss = WithPenalty(loss=InfoNCE(temperature=0.5), temperature=0.5, weight=0.1)
    expected = InfoNCE(temperature=0.5)(scores, positive, candidate)
    expected = expected + 0.1 * logsumexp_penalty(scores[:4] / 0.5, candidate[:4]).mean()
    assert_close(loss(scores, positive, candidate), expected)
