"""Controls for step values: constant values, flipped oracle labels, random potentials and shuffled values."""

from __future__ import annotations

import copy
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.advantages import GroupRelative, Survival
from contrastive_reasoning.critics import Calibration, Platt
from contrastive_reasoning.distributed import this_rank
from contrastive_reasoning.rewards import (
    CalibratedReward,
    ConstantLogit,
    ConstantValueReward,
    Credit,
    FlippedOracleReward,
    OracleReward,
    RandomPotentialReward,
    ShuffledCalibratedReward,
    ShuffledReward,
    VerifierReward,
    WeightedSum,
)
from contrastive_reasoning.rewards.controls import fixed_draw
from contrastive_reasoning.rewards.step_metrics import Judged, step_metrics
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown import CountdownProblem
from tests.two_ranks import on_ranks
from tests.unit.rewards.conftest import play, values

PROBLEMS = [CountdownProblem(n, t, style="direct") for n, t in [((21, 16, 17, 26), 46), ((3, 7, 9, 12), 24)]]


@pytest.fixture(scope="module")
def texts() -> list[str]:
    rng = random.Random(0)
    return [play(rng, tuple(problem.fields["numbers"])) for problem in PROBLEMS for _ in range(30)]


@pytest.fixture
def oracle(task: Task) -> Callable[[float], OracleReward]:
    return lambda weight: OracleReward(outcome=VerifierReward(task=task), task=task, weight=weight)


def flipped(task: Task, flip: float, seed: int = 0, weight: float = 0.5) -> FlippedOracleReward:
    return FlippedOracleReward(outcome=VerifierReward(task=task), task=task, weight=weight, flip=flip, seed=seed)


def test_survival_with_constant_values_credits_only_last_step(task: Task, rollouts_of, texts: list[str]) -> None:
    rollouts = rollouts_of(texts, *PROBLEMS)
    constant = ConstantValueReward(outcome=VerifierReward(task=task), task=task, weight=0.0, value=0.5)
    credit, outcome = constant(rollouts), GroupRelative(normalise_std=True, epsilon=1e-6)
    step = Survival(outcome=outcome, weight=1.0, epsilon=0.05)(credit, rollouts.mask, rollouts.group_size)
    step -= outcome(credit, rollouts.mask, rollouts.group_size)
    for row, (*first, last) in enumerate(credit.steps or ()):
        assert all(step[row, move.first_token].item() == 0.0 for move in first)
        assert (step[row, last.first_token] > 0) == bool(credit.outcome[row])
    assert credit.outcome.any()


def test_flipped_oracle_without_flips_equals_oracle(task: Task, rollouts_of, oracle, texts: list[str]) -> None:
    rollouts = rollouts_of(texts, *PROBLEMS)
    true, got = oracle(0.5)(rollouts), flipped(task, 0.0)(rollouts)
    assert torch.equal(got.outcome, true.outcome)
    assert (got.steps, got.starts) == (true.steps, true.starts)
    assert torch.equal(got.parts["oracle_flipped"], true.parts["oracle"])


def test_flipped_label_depends_only_on_state_and_seed(task: Task, rollouts_of) -> None:
    """A state keeps its label after another order of moves, and in another row and batch."""
    reward = flipped(task, 0.5)
    rollouts = rollouts_of(["21+16=37;37-17=20", "16+21=37;26-17=9", "37-17=20"], PROBLEMS[0])
    assert values(reward(rollouts))[0][0] == values(reward(rollouts))[1][0]
    states = [(a, b, c) for a in range(1, 9) for b in range(1, 9) for c in range(1, 9)]
    labels = [reward.label(PROBLEMS[1], state) for state in states]
    assert labels == [reward.label(PROBLEMS[1], tuple(reversed(state))) for state in states]
    assert labels != [flipped(task, 0.5, seed=1).label(PROBLEMS[1], state) for state in states]


def test_share_of_flips_matches_probability_and_flips_are_nested(task: Task) -> None:
    states = [(a, b, c) for a in range(1, 16) for b in range(a, 16) for c in range(b, 16)]
    truth = {state: flipped(task, 0.0).label(PROBLEMS[1], state) for state in states}
    wrong = {}
    for flip in (0.05, 0.1, 0.2, 0.4):
        reward = flipped(task, flip)
        wrong[flip] = {state for state in states if reward.label(PROBLEMS[1], state) != truth[state]}
        spread = (flip * (1 - flip) / len(states)) ** 0.5
        assert abs(len(wrong[flip]) / len(states) - flip) < 5 * spread
    assert wrong[0.05] < wrong[0.1] < wrong[0.2] < wrong[0.4]


def test_random_potential_is_one_draw_per_state_and_target(task: Task, rollouts_of) -> None:
    reward = RandomPotentialReward(outcome=VerifierReward(task=task), task=task, weight=0.5, seed=3)
    rollouts = rollouts_of(["21+16=37;37-17=20", "16+21=37", "21-16=5", ""], PROBLEMS[0])
    credit = reward(rollouts)
    (first, second), (again,), (other,), none = values(credit)
    assert first == again
    assert len({first, second, other}) == 3
    assert none == []
    assert credit.starts == [fixed_draw("random_potential", 3, [16, 17, 21, 26], 46)] * 4
    assert credit.outcome.tolist() == pytest.approx([0.5 * (first + second) / 2, 0.5 * first, 0.5 * other, 0.0])


def test_fixed_draw_is_uniform_and_reproducible() -> None:
    draws = sorted(fixed_draw("here", index) for index in range(2000))
    gap = max(max(abs(draw - i / 2000), abs(draw - (i + 1) / 2000)) for i, draw in enumerate(draws))
    assert gap < 1.95 / 2000**0.5, "Kolmogorov and Smirnov at 0.1%"
    assert fixed_draw("a", 1, [2, 3]) == 0.9068408775660531, "the same in every process and version"


def assert_moved_within_depths(true: Credit, got: Credit, *, more_than: int) -> None:
    """Each depth keeps its values, and more than this many steps have another one."""
    steps = [[step for row in credit.steps or () for step in row] for credit in (true, got)]
    counts = [Counter((step.depth, step.value) for step in every) for every in steps]
    assert counts[0] == counts[1]
    assert sum(one.value != other.value for one, other in zip(*steps, strict=True)) > more_than


def shuffled(reward: OracleReward | RandomPotentialReward, weight: float = 0.0, seed: int = 0) -> ShuffledReward:
    return ShuffledReward(reward=reward, weight=weight, seed=seed)


def test_shuffled_reward_keeps_values_of_each_depth(task: Task, rollouts_of, texts: list[str]) -> None:
    inner = RandomPotentialReward(outcome=VerifierReward(task=task), task=task, weight=0.0, seed=0)
    rollouts = rollouts_of(texts, *PROBLEMS)
    true, got = inner(rollouts), shuffled(inner)(rollouts)
    places = [[[step._replace(value=0.0) for step in row] for row in credit.steps or ()] for credit in (true, got)]
    assert places[0] == places[1]
    assert_moved_within_depths(true, got, more_than=len(texts))
    assert torch.equal(got.outcome, true.outcome)
    assert got.verdicts == true.verdicts


def test_shuffled_reward_logs_metrics_of_shuffled_values(task: Task, rollouts_of, oracle, texts: list[str]) -> None:
    """A trust gate that reads the metrics must not trust shuffled values because the true values are good."""
    won = "21+16=37;37-17=20;26+20=46"
    rollouts = rollouts_of([won] * 10 + texts[10:], *PROBLEMS)
    true, got = oracle(0.0)(rollouts), shuffled(oracle(0.0))(rollouts)
    steps = got.steps or []
    judged = [[Judged(step.value, step.depth, step.depth == 1) for step in row] for row in steps]
    logged = {name: value for name, value in got.metrics.items() if name.startswith("steps/")}
    assert logged == step_metrics(judged, steps, got.verdicts, rollouts.group_size)
    assert got.metrics["steps/auroc_siblings"] < true.metrics["steps/auroc_siblings"] - 0.2
    assert got.metrics["steps/repeated"] == true.metrics["steps/repeated"]


@pytest.mark.parametrize("by_row", [False, True])
def test_shuffled_reward_moves_starts_between_problems_and_keeps_their_order_in_a_group(
    task: Task, rollouts_of, by_row: bool
) -> None:
    """Monte Carlo starts differ within a group: each leaves out its own verdict, and the others contain it."""
    problems = [CountdownProblem((n, n + 1, 3), 10, style="direct") for n in range(4, 24)]
    rollouts = rollouts_of([f"{row}" for row in range(40)], *problems)
    starts = [float(row if by_row else row // 2 * 2) for row in range(40)]
    plain = RandomPotentialReward(outcome=VerifierReward(task=task), task=task, weight=0.0, seed=0)(rollouts)
    got = ShuffledReward(reward=lambda rollouts: replace(plain, starts=starts), weight=0.0, seed=0)(rollouts).starts
    assert got is not None
    assert sorted(got) == starts != got
    assert all((second - first, first % 2) == (by_row, 0) for first, second in zip(got[::2], got[1::2], strict=True))


def test_shuffle_order_depends_only_on_seed_and_texts(task: Task, rollouts_of, texts: list[str]) -> None:
    inner = RandomPotentialReward(outcome=VerifierReward(task=task), task=task, weight=0.0, seed=0)
    rollouts, others = rollouts_of(texts, *PROBLEMS), rollouts_of([*texts[1:30], texts[0], *texts[30:]], *PROBLEMS)
    reward = shuffled(inner)
    first = values(reward(rollouts))
    reward(others)
    assert values(reward(rollouts)) == first == values(shuffled(inner)(rollouts))
    assert values(shuffled(inner, seed=1)(rollouts)) != first
    assert values(reward(others)) != [*first[1:30], first[0], *first[30:]]


def test_shuffled_reward_rejects_sum_that_adds_step_values(task: Task, oracle) -> None:
    def summed(weight: float, share: float) -> WeightedSum:
        return WeightedSum(rewards={"oracle": oracle(weight)}, weights={"oracle": share})

    with pytest.raises(ValueError, match=r"OracleReward.*0\.5"):
        ShuffledReward(reward=summed(0.5, 1.0), weight=0.0, seed=0)
    ShuffledReward(reward=summed(0.0, 1.0), weight=0.0, seed=0)
    ShuffledReward(reward=summed(0.5, 0.0), weight=0.0, seed=0)


class GradedLogit(ConstantLogit):
    """States differ by their numbers, so that isotonic curves have many values."""

    def logit(self, problem: Any, state: Sequence[int]) -> float:
        return sum(state) / 20.0


def placebo(task: Task, *, seed: int | None, weight: float = 0.0) -> CalibratedReward:
    """Returns the calibrated reward, shuffled if a seed is given."""
    settings: dict[str, Any] = {
        "source": GradedLogit(outcome=VerifierReward(task=task), task=task, weight=0.0),
        "weight": weight,
        "calibration": Calibration(curve=Platt(), least_visits=10),
        "batches": 2,
        "refit_every": 1,
        "warmup_steps": 0,
    }
    return CalibratedReward(**settings) if seed is None else ShuffledCalibratedReward(**settings, seed=seed)


def test_values_are_shuffled_within_depth_after_calibration(task: Task, rollouts_of, texts: list[str]) -> None:
    won = "21+16=37;37-17=20;26+20=46"
    batches = [rollouts_of([won] * 10 + texts[10:], *PROBLEMS), rollouts_of([won] * 20 + texts[20:], *PROBLEMS)]
    plain, got = placebo(task, seed=None), placebo(task, seed=0)
    for rollouts in batches:
        true, moved = plain(rollouts), got(rollouts)
        assert_moved_within_depths(true, moved, more_than=len(texts))
        assert sorted(moved.starts or ()) == sorted(true.starts or ())
        assert torch.equal(moved.outcome, true.outcome)
        assert moved.metrics["critic/brier"] == true.metrics["critic/brier"], "the curves learn from the states' own"
        assert moved.metrics["steps/auroc"] != true.metrics["steps/auroc"]
    weighted = placebo(task, seed=0, weight=0.5)(batches[0])
    means = [sum(row) / max(1, len(row)) for row in values(placebo(task, seed=0)(batches[0]))]
    assert_close(weighted.outcome - weighted.outcome.round(), 0.5 * torch.tensor(means))


def test_shuffle_after_calibration_is_function_of_seed_and_batch(task: Task, rollouts_of, texts: list[str]) -> None:
    """A resumed reward shuffles the next batch as the uninterrupted one does."""
    batches = [rollouts_of(own, *PROBLEMS) for own in (texts, [*texts[1:30], texts[0], *texts[30:]])]
    whole, resumed = placebo(task, seed=3), placebo(task, seed=3)
    whole(batches[0])
    resumed.load_state_dict(copy.deepcopy(whole.state_dict()))
    found = values(whole(batches[1]))
    assert values(resumed(batches[1])) == found
    other = placebo(task, seed=4)
    other(batches[0])
    assert values(other(batches[1])) != found


def valued(reward: CalibratedReward, of_ranks: list[RolloutBatch]) -> tuple[list[list[float]], Any]:
    rollouts = of_ranks[this_rank()]
    reward(rollouts)
    credit = reward(rollouts)
    return values(credit), credit.starts


@pytest.mark.whole
def test_ranks_shuffle_as_one_process_does(task: Task, rollouts_of, texts: list[str], tmp_path: Path) -> None:
    problems = [problem for problem in PROBLEMS for _ in range(2)]
    groups = [texts[first : first + 15] for first in range(0, 60, 15)]
    found, starts = valued(placebo(task, seed=0), [rollouts_of(texts, *problems)])
    shares = [
        rollouts_of([text for group in groups[rank::2] for text in group], *problems[rank::2]) for rank in range(2)
    ]
    for rank, (own, own_starts) in enumerate(on_ranks(valued, tmp_path, placebo(task, seed=0), shares)):
        rows = [row for group in range(rank, 4, 2) for row in range(15 * group, 15 * group + 15)]
        assert [value for row in own for value in row] == pytest.approx([value for row in rows for value in found[row]])
        assert own_starts == pytest.approx([starts[row] for row in rows])
