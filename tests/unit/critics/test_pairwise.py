from __future__ import annotations

from itertools import combinations

import torch
from torch import Tensor
from torch.testing import assert_close

from contrastive_reasoning.critics import PairwiseCritic
from contrastive_reasoning.critics.pairwise import LOG_WAVES, PairTrunk, features_with_logarithms

STATES = torch.tensor(
    [[37, 26, 17, -1, -1, -1], [50, 4, -1, -1, -1, -1], [9, -1, -1, -1, -1, -1], [1999, 3, 2, 1, 0, 0]]
)


def pairwise(*, seed: int = 0) -> PairwiseCritic:
    return PairwiseCritic(
        value_dimension=4, width=16, blocks=1, dimension=8, join_dimension=4, pairs_per_chunk=1000, seed=seed
    )


def test_a_sum_in_float32_takes_pairs_in_bfloat16() -> None:
    """As autocast makes them on CUDA, which sums in float32 whatever comes in."""
    trunk = pairwise().trunk
    assert isinstance(trunk, PairTrunk)
    features = pairwise().features(STATES).flatten(start_dim=1)
    expected = trunk(features)
    trunk.pair_blocks.register_forward_hook(lambda module, inputs, output: output.bfloat16())
    assert_close(trunk(features), expected, rtol=0.05, atol=0.05)


def by_loops(trunk: PairTrunk, numbers: list[Tensor]) -> Tensor:
    """Of one state: the numbers that are there, features of each."""
    total = sum((trunk.alone(number) for number in numbers), torch.zeros(()))
    # padding has no features, and six numbers are taken alone whatever the state
    total = total + (6 - len(numbers)) * trunk.alone.bias
    for i, j in combinations(range(len(numbers)), 2):
        rest = sum((n for k, n in enumerate(numbers) if k not in (i, j)), torch.zeros_like(numbers[0]))
        pair = trunk.linear(torch.cat([numbers[i], numbers[j], rest]))
        pair = pair + trunk.product(trunk.first(numbers[i]) * trunk.second(numbers[j]))
        total = total + trunk.pair_blocks(pair[None])[0]
    return trunk.state(total[None])[0]


def test_the_trunk_is_a_sum_over_the_pairs_that_are_there() -> None:
    critic = pairwise()
    trunk = critic.trunk
    assert isinstance(trunk, PairTrunk)
    features = critic.features(STATES)
    found = trunk(features.flatten(start_dim=1))
    for row, state in enumerate(STATES.tolist()):
        numbers = [features[row, place] for place, number in enumerate(state) if number >= 0]
        assert_close(found[row], by_loops(trunk, numbers), rtol=1e-5, atol=1e-5)


def test_waves_over_the_logarithm_turn_products_into_sums() -> None:
    seen = features_with_logarithms(torch.tensor([-1, 0, 6, 7, 42])).double()
    sin, cos = seen[:, :LOG_WAVES], seen[:, LOG_WAVES : 2 * LOG_WAVES]
    assert_close(sin[2] * cos[3] + cos[2] * sin[3], sin[4], rtol=0, atol=1e-5)
    assert seen[0].tolist() == [0.0] * (seen.shape[1] - 1) + [1.0]
    assert seen.isfinite().all()
