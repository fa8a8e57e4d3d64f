from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.critics import JointCritic, PairwiseCritic
from contrastive_reasoning.critics.joint import PERIODS, NumberFeatures, fixed_features
from contrastive_reasoning.tasks.base import Step
from contrastive_reasoning.tasks.countdown import CountdownProblem

SIZES = {"value_dimension": 4, "width": 16, "blocks": 1, "dimension": 8, "join_dimension": 4}


def joint(kind: type[JointCritic] = JointCritic, *, pairs_per_chunk: int = 1000, seed: int = 0) -> JointCritic:
    return kind(**SIZES, pairs_per_chunk=pairs_per_chunk, seed=seed)


BOTH = pytest.mark.parametrize("kind", [JointCritic, PairwiseCritic])
STATES = torch.tensor(
    [[37, 26, 17, -1, -1, -1], [50, 4, -1, -1, -1, -1], [9, -1, -1, -1, -1, -1], [1999, 3, 2, 1, 0, 0]]
)
GOALS = torch.tensor([46, 10])


@BOTH
@pytest.mark.parametrize("pairs_per_chunk", [1, 1000])
def test_all_pairs_matrix_matches_pairs(kind: type[JointCritic], pairs_per_chunk: int) -> None:
    critic = joint(kind, pairs_per_chunk=pairs_per_chunk)
    every = critic(STATES, GOALS)
    for column, goal in enumerate(GOALS):
        assert_close(every[:, column], critic.pairs(STATES, goal.expand(len(STATES))))


@BOTH
def test_values_do_not_depend_on_number_order(kind: type[JointCritic]) -> None:
    critic = joint(kind)
    assert_close(critic(STATES.flip(1), GOALS), critic(STATES, GOALS), rtol=0, atol=0)


@BOTH
def test_seed_sets_weights_and_keeps_global_rng_state(kind: type[JointCritic]) -> None:
    before = torch.random.get_rng_state()
    one, same, other = (joint(kind, seed=seed) for seed in (1, 1, 2))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert_close(one(STATES, GOALS), same(STATES, GOALS), rtol=0, atol=0)
    assert not torch.equal(one(STATES, GOALS), other(STATES, GOALS))


def test_encode_steps_returns_reached_states_and_targets() -> None:
    problem = CountdownProblem((21, 16, 17, 26), 46)
    steps = [Step(start=0, end=8, state=(37, 17, 26), legal=True), Step(start=9, end=17, state=(20, 26), legal=True)]
    states, goals = joint().encode_steps(problem, "21+16=37;37-17=20", steps)
    assert states.tolist() == [[37, 26, 17, -1, -1, -1], [26, 20, -1, -1, -1, -1]]
    assert goals.tolist() == [46, 46]
    assert joint().pairs(*joint().encode_steps(problem, "", [])).shape == (0,)


def test_fixed_features_encode_parity_digits_and_padding() -> None:
    features = fixed_features(torch.tensor([-1, 0, 7, 17, 10_000]))
    cosines = features[:, len(PERIODS) : 2 * len(PERIODS)]
    assert_close(cosines[1:4, PERIODS.index(2)], torch.tensor([1.0, -1.0, -1.0]))
    assert_close(cosines[2, PERIODS.index(10)], cosines[3, PERIODS.index(10)])
    assert features[0].tolist() == [0.0] * (features.shape[1] - 1) + [1.0]
    assert NumberFeatures(dimension=3, fixed=fixed_features)(torch.tensor([[1, 9_999]])).isfinite().all()


def test_zero_join_gives_scaled_inner_product() -> None:
    critic = joint()
    with torch.no_grad():
        for part in (critic.join[-1].weight, critic.join[-1].bias, critic.bias):
            part.zero_()
        states, goals = critic.encode_state_action(STATES), critic.encode_goal(GOALS)
        assert_close(critic(STATES, GOALS), states @ goals.T / 8**0.5)
