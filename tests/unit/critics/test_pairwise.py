from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.critics import PairwiseCritic
from contrastive_reasoning.critics.pairwise import LOG_WAVES, PairTrunk, features_with_logarithms
from tests.unit.critics.test_joint import STATES, joint


def test_trunk_accepts_bfloat16_pairs_in_float32_sum() -> None:
    """On CUDA, autocast computes the pairs in bfloat16, but sums them in float32."""
    trunk = joint(PairwiseCritic).trunk
    assert isinstance(trunk, PairTrunk)
    features = joint(PairwiseCritic).features(STATES).flatten(start_dim=1)
    expected = trunk(features)
    trunk.pair_blocks.register_forward_hook(lambda module, inputs, output: output.bfloat16())
    assert_close(trunk(features), expected, rtol=0.05, atol=0.05)


def by_loops(trunk: PairTrunk, numbers: list[Tensor]) -> Tensor:
    """Slow reference for one state, from the features of each of its numbers."""
    total = sum((trunk.alone(number) for number in numbers), torch.zeros(()))
    # the features of padding are zero, but `alone` is applied to all six places, so its bias counts for each
    total = total + (6 - len(numbers)) * trunk.alone.bias
    for i, j in combinations(range(len(numbers)), 2):
        rest = sum((n for k, n in enumerate(numbers) if k not in (i, j)), torch.zeros_like(numbers[0]))
        pair = trunk.linear(torch.cat([numbers[i], numbers[j], rest]))
        pair = pair + trunk.product(trunk.first(numbers[i]) * trunk.second(numbers[j]))
        total = total + trunk.pair_blocks(pair[None])[0]
    return trunk.state(total[None])[0]


def test_trunk_sums_over_pairs_of_present_numbers() -> None:
    critic = joint(PairwiseCritic)
    trunk = critic.trunk
    assert isinstance(trunk, PairTrunk)
    features = critic.features(STATES)
    found = trunk(features.flatten(start_dim=1))
    for row, state in enumerate(STATES.tolist()):
        numbers = [features[row, place] for place, number in enumerate(state) if number >= 0]
        assert_close(found[row], by_loops(trunk, numbers), rtol=1e-5, atol=1e-5)


def test_logarithm_waves_turn_products_into_sums() -> None:
    features = features_with_logarithms(torch.tensor([-1, 0, 6, 7, 42])).double()
    sin, cos = features[:, :LOG_WAVES], features[:, LOG_WAVES : 2 * LOG_WAVES]
    assert_close(sin[2] * cos[3] + cos[2] * sin[3], sin[4], rtol=0, atol=1e-5)
    assert features[0].tolist() == [0.0] * (features.shape[1] - 1) + [1.0]
    assert features.isfinite().all()
