from __future__ import annotations

from itertools import combinations
from math import exp, isnan, log

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA
from torch.testing import assert_close

from contrastive_reasoning.geometry import alignment, effective_rank, parity_accuracy, parity_of, pca, tsne, uniformity

POINTS = torch.randn(30, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64) * torch.tensor(
    [5, 3, 1, 1, 1]
)
FEW = torch.randn(6, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_pca_matches_scikit_learn_up_to_signs_which_do_not_depend_on_order_of_points() -> None:
    reference = PCA(2).fit(POINTS.numpy())
    ours = pca(POINTS, components=2)
    assert_close(ours.points.abs(), torch.from_numpy(np.abs(reference.transform(POINTS.numpy()))))
    assert_close(ours.explained, torch.from_numpy(reference.explained_variance_ratio_))
    order = torch.randperm(30, generator=torch.Generator().manual_seed(1))
    assert_close(pca(POINTS[order], components=2).points, ours.points[order])


def test_pca_of_equal_points_is_zero_and_too_many_components_raise() -> None:
    same = pca(torch.ones(4, 3), components=2)
    assert same.points.abs().max() < 1e-6
    assert same.explained.isfinite().all()
    with pytest.raises(ValueError, match=r"4 points in 3 .*4"):
        pca(torch.ones(4, 3), components=4)


def test_tsne_separates_clusters_and_keeps_global_random_state() -> None:
    clusters = torch.cat([POINTS[:10] * 0.01, POINTS[10:20] * 0.01 + 100])
    before = torch.random.get_rng_state(), np.random.get_state()[1].copy()
    flat = tsne(clusters, perplexity=30.0, seed=0)
    assert torch.equal(torch.random.get_rng_state(), before[0])
    assert np.array_equal(np.random.get_state()[1], before[1])
    assert torch.equal(flat, tsne(clusters, perplexity=30.0, seed=0))
    assert tsne(clusters, perplexity=30.0, seed=20261128123456).isfinite().all()
    within, between = torch.cdist(flat[:10], flat[:10]).mean(), torch.cdist(flat[:10], flat[10:]).mean()
    assert between > within
    with pytest.raises(ValueError, match=r"4 points.*3"):
        tsne(POINTS[:3], perplexity=1.0, seed=0)


def test_parity_of_sums_numbers_and_ignores_padding() -> None:
    assert parity_of(torch.tensor([[3, 4, -1], [3, 5, -1]])).tolist() == [True, False]
    assert parity_of(torch.tensor([46, 17])).tolist() == [False, True]


def test_parity_accuracy_is_one_for_encoded_parity_and_chance_for_noise() -> None:
    noise = torch.randn(200, 6, generator=torch.Generator().manual_seed(0))
    parity = torch.arange(200) % 2 == 1
    written = noise.clone()
    written[:, 0] += 20 * parity
    assert parity_accuracy(written, parity, components=2, folds=5) == 1.0
    assert abs(parity_accuracy(noise, parity, components=2, folds=5) - 0.5) < 0.12
    assert isnan(parity_accuracy(noise, torch.ones_like(parity), components=2, folds=3)), "a class is missing"


def test_alignment_is_zero_for_the_same_direction_and_four_for_the_opposite() -> None:
    assert_close(alignment(FEW, 3 * FEW), torch.tensor(0.0, dtype=torch.float64))
    assert_close(alignment(FEW, -FEW), torch.tensor(4.0, dtype=torch.float64))


def test_uniformity_matches_formula_over_pairs() -> None:
    unit = [(row / row.norm()).tolist() for row in FEW]
    terms = [exp(-2 * sum((a - b) ** 2 for a, b in zip(x, y, strict=True))) for x, y in combinations(unit, 2)]
    assert uniformity(FEW).item() == pytest.approx(log(sum(terms) / len(terms)), abs=1e-12)
    with pytest.raises(ValueError, match=r"two points.*1"):
        uniformity(FEW[:1])


def test_effective_rank_counts_directions_in_use() -> None:
    square = torch.tensor([[1.0, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0]])
    assert_close(effective_rank(square), torch.tensor(2.0))
    line = torch.tensor([[1.0, 2, 3], [2, 4, 6], [5, 10, 15]])
    assert_close(effective_rank(line), torch.tensor(1.0), rtol=1e-3, atol=1e-3)
