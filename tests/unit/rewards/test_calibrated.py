"""CalibratedReward: the states it is fitted to, the fit after each reward, and resuming."""

from __future__ import annotations

import copy
import io
import math
import random
from collections import defaultdict
from collections.abc import Callable
from itertools import chain, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.advantages import GroupRelative, Potential
from contrastive_reasoning.critics import Calibration, EnsembleCritic, Isotonic, save_critic
from contrastive_reasoning.critics.calibration import join_examples
from contrastive_reasoning.rewards import (
    CalibratedReward,
    ConstantLogit,
    Credit,
    CriticReward,
    OracleReward,
    VerifierReward,
)
from contrastive_reasoning.rewards.calibrated import LogitSource, visited_states
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown import CountdownProblem, legal_moves, reachable
from tests.unit.critics.test_joint import joint
from tests.unit.rewards.conftest import play, values

PROBLEMS = [CountdownProblem(numbers, 46, style="direct") for numbers in ((21, 16, 17, 26), (20, 26, 1, 2))]
GROUP = 12
Source = Callable[..., CriticReward]
Batches = list[RolloutBatch]


@pytest.fixture
def source(task: Task, tmp_path: Path) -> Source:
    def build(critic: Any = None, folder: str = "critic", **changes: Any) -> CriticReward:
        critic = joint() if critic is None else critic
        save_critic(critic, tmp_path / folder, {})
        settings: dict[str, Any] = {"outcome": VerifierReward(task=task), "weight": 0.0, "temperature": 0.5}
        settings |= {"critic": critic, "checkpoint": str(tmp_path / folder), "batch_size": 64} | changes
        return CriticReward(task=task, **settings)

    return build


def calibrated(source: LogitSource, **changes: Any) -> CalibratedReward:
    settings: dict[str, Any] = {
        "weight": 0.0,
        "calibration": Calibration(curve=Isotonic(), least_visits=10),
        "batches": 3,
        "refit_every": 2,
        "warmup_steps": 1,
    }
    return CalibratedReward(source=source, **settings | changes)


@pytest.fixture
def batches(rollouts_of) -> Batches:
    rng = random.Random(0)
    solved = ["21+16=37;37-17=20;26+20=46", "20+26=46;2-1=1;46*1=46"]

    def text(p: int) -> str:
        return solved[p] if rng.random() < 0.4 else play(rng, PROBLEMS[p].numbers, most=rng.randint(0, 3))

    return [rollouts_of([text(p) for p in range(2) for _ in range(GROUP)], *PROBLEMS) for _ in range(6)]


def saved(state: dict[str, Any]) -> dict[str, Any]:
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    return torch.load(file, weights_only=True)


def test_visited_states_match_loops(task: Task, batches: Batches) -> None:
    rollouts = batches[0]
    steps = [[s for s in task.parse_steps(rollouts.problem_of(i), t) if s.legal] for i, t in enumerate(rollouts.texts)]
    logits = [[float(sum(step.state)) for step in row] for row in steps]
    correct = torch.tensor([task.verify(rollouts.problem_of(i), t).correct for i, t in enumerate(rollouts.texts)])
    got = visited_states(rollouts, steps, logits, [1000.0, 2000.0], correct, ())
    expected: dict[Any, list[bool]] = defaultdict(list)
    for row, own in enumerate(steps):
        start = tuple(sorted(rollouts.problem_of(row).fields["numbers"]))
        for state in {start} | {tuple(sorted(step.state)) for step in own}:
            expected[row // GROUP, state].append(bool(correct[row]))
    assert got.visits.sum() == sum(map(len, expected.values()))
    assert len(got.logits) == len(expected)
    for (group, state), ends in expected.items():
        logit = 1000.0 * (group + 1) if len(state) == 4 else float(sum(state))
        same = (got.logits == logit) & (got.depth == len(state)) & (got.visits == len(ends))
        assert (same & (got.share == sum(ends) / len(ends))).any()


def test_first_batch_is_valued_by_sigmoid_and_then_fitted(batches: Batches, source: Source) -> None:
    raw, reward = source(), calibrated(source())
    plain, first = raw(batches[0]), reward(batches[0])
    assert_close(values(first), values(plain))
    assert first.starts == pytest.approx(plain.starts)
    assert first.metrics["critic/ece"] > 0
    again = reward(batches[0])
    assert again.metrics["critic/ece"] < 0.6 * first.metrics["critic/ece"]
    assert again.metrics["critic/brier"] < first.metrics["critic/brier"]
    assert values(again) != values(first)
    assert torch.equal(again.outcome, plain.outcome), "weight 0: the verdict alone"


def test_weight_adds_mean_calibrated_value_to_outcome(batches: Batches, source: Source) -> None:
    plain, weighted = (calibrated(source(), weight=weight)(batches[0]) for weight in (0.0, 0.25))
    means = [sum(row) / max(1, len(row)) for row in values(weighted)]
    assert_close(weighted.outcome, plain.outcome + 0.25 * torch.tensor(means))
    with pytest.raises(ValueError, match=r"CalibratedReward.*weight 0"):
        calibrated(source(weight=0.5))


def test_metrics_use_curves_fitted_before_batch(batches: Batches, source: Source) -> None:
    reward = calibrated(source(), refit_every=1)
    reward(batches[0])
    before = copy.deepcopy(reward.calibration)
    credit = reward(batches[1])
    fresh = reward.seen[-1]
    undecided = fresh.of(fresh.depth > 1)
    p, share = before(undecided.logits, undecided.depth), undecided.share
    squared = undecided.visits * (share * (1 - p) ** 2 + (1 - share) * p**2)
    assert credit.metrics["critic/brier"] == pytest.approx((squared.sum() / undecided.visits.sum()).item())


def test_calibration_refits_at_interval_to_last_batches(batches: Batches, source: Source) -> None:
    reward, fits = calibrated(source(), batches=3, refit_every=2), []
    for rollouts in batches:
        reward(rollouts)
        fits.append(reward.calibration.state_dict()["pooled"]["probability"])
    changed = [not torch.equal(a, b) for a, b in pairwise(fits)]
    assert changed == [True, False, True, False, True], "batch 1, then 2, 4, 6"
    by_hand = Calibration(curve=Isotonic(), least_visits=10)
    last = list(reward.seen)
    assert len(last) == 3
    by_hand.fit(join_examples(last))
    assert torch.equal(by_hand.state_dict()["pooled"]["probability"], fits[-1])


@pytest.mark.parametrize("stop", [1, 3])
def test_resumed_reward_is_bitwise_equal_to_uninterrupted(batches: Batches, source: Source, stop: int) -> None:
    whole, stopped, resumed = (calibrated(source()) for _ in range(3))
    credits = [whole(rollouts) for rollouts in batches]
    for rollouts in batches[:stop]:
        stopped(rollouts)
    resumed.load_state_dict(saved(stopped.state_dict()))
    for expected, rollouts in zip(credits[stop:], batches[stop:], strict=True):
        credit = resumed(rollouts)
        assert values(credit) == values(expected)
        assert (credit.starts, credit.metrics) == (expected.starts, expected.metrics)


def test_ensemble_mean_is_calibrated_and_disagreement_is_logged(task: Task, batches: Batches, source: Source) -> None:
    """Loops compute the curve of the members' mean logit, and the members' spread over states with a move left."""
    ensemble = EnsembleCritic(member=joint, size=2, seed=0)
    reward = calibrated(source(critic=ensemble), refit_every=1)
    reward(batches[0])
    before, rollouts = copy.deepcopy(reward.calibration), batches[1]
    credit = reward(rollouts)
    expected, spreads = [], []
    for row, text in enumerate(rollouts.texts):
        steps = [step for step in task.parse_steps(rollouts.problem_of(row), text) if step.legal]
        for step, (one, other) in zip(
            steps, reward.source.state_logits(rollouts, [steps])[0][0].T.tolist(), strict=True
        ):
            depth = len(step.state)
            expected.append(before(torch.tensor([(one + other) / 2]).double(), torch.tensor([depth])).item())
            spreads += [abs(1 / (1 + math.exp(-one)) - 1 / (1 + math.exp(-other))) / 2] if depth > 1 else []
    assert [value for row in values(credit) for value in row] == pytest.approx(expected)
    assert credit.metrics["critic/disagreement"] == pytest.approx(2 * sum(spreads) / len(spreads), abs=1e-6)
    assert 0 < credit.metrics["critic/disagreement"] < 1


def test_begin_anew_fits_curves_to_logits_of_new_critic(batches: Batches, source: Source) -> None:
    """The next batch is valued as if the successor had rewarded only the batch before it."""
    reward, successor = calibrated(source()), source(critic=joint(seed=1), folder="successor")
    for rollouts in batches[:4]:
        reward(rollouts)
    former, reward.source.critic = reward.source.critic, successor.critic  # pyright: ignore
    reward.foresee(batches[3])
    reward.source.critic = former  # pyright: ignore
    reward.load_state_dict(saved(reward.state_dict()))
    unmoved = copy.deepcopy(reward)
    reward.source.critic = successor.critic  # pyright: ignore
    reward.begin_anew()
    alone = calibrated(successor)
    alone(batches[3])
    assert values(reward(batches[4])) == values(alone(batches[4]))
    assert len(reward.seen) == 2
    assert values(unmoved(batches[4])) != values(reward(batches[4])), "what is foreseen changes nothing by itself"


def test_outcome_without_verdicts_raises(batches: Batches, source: Source) -> None:
    nothing = torch.zeros(len(batches[0]))
    unverified = source(outcome=lambda rollouts: Credit(outcome=nothing, parts={"luck": nothing}))
    with pytest.raises(ValueError, match=r"source\.outcome.*luck"):
        calibrated(unverified)(batches[0])


@pytest.mark.parametrize(("name", "value"), [("batches", 0), ("refit_every", 0), ("warmup_steps", -1)])
def test_numbers_out_of_range_raise(source: Source, name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        calibrated(source(), **{name: value})


NUMBERS = (21, 16, 17)
TARGETS = (20, 54)  # 37 − 17, which few random games reach, and 37 + 17, which more reach


def easy_play(rng: random.Random) -> str:
    """Returns moves of which many are the first that is legal, so that some games reach a target."""
    state, lines = NUMBERS, []
    while len(state) > 1:
        move = rng.choice(legal_moves(state)) if rng.random() < 0.7 else legal_moves(state)[0]
        lines.append(move.equation)
        state = move.state
    return ";".join(lines)


def test_calibrated_oracle_value_is_success_share_by_reachability(task: Task, rollouts_of) -> None:
    rng = random.Random(0)
    problems = [CountdownProblem(NUMBERS, target, style="direct") for target in TARGETS]
    rollouts = rollouts_of([easy_play(rng) for _ in range(len(TARGETS) * 60)], *problems)
    oracle = OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.0)
    reward = calibrated(oracle, batches=2, refit_every=1)
    reward(rollouts)
    credit = reward(rollouts)  # valued by the curves that the first call fitted
    ends = defaultdict(list)
    for row, text in enumerate(rollouts.texts):
        problem = rollouts.problem_of(row)
        right = task.verify(problem, text).correct
        ends["start"].append(right)
        first = task.parse_steps(problem, text)[0]
        ends[reachable(first.state, problem.fields["target"])].append(right)
    share = {known: sum(right) / len(right) for known, right in ends.items()}
    assert 0.0 == share[False] < share["start"] < share[True] < 1.0
    assert credit.starts == pytest.approx([share["start"]] * len(rollouts))
    for row, own in enumerate(values(credit)):
        problem = rollouts.problem_of(row)
        first = task.parse_steps(problem, rollouts.texts[row])[0]
        assert own[0] == pytest.approx(share[reachable(first.state, problem.fields["target"])])


def test_constant_logit_is_worth_mean_success_at_its_depth(task: Task, rollouts_of) -> None:
    """Of eight rollouts 3 succeed; 5 make a legal first move, of which 3 succeed; 4 make two moves, of which 3 do."""
    problems = [CountdownProblem(NUMBERS, target, style="direct") for target in TARGETS]
    texts = ["21+16=37;37-17=20", "21+16=37", "", "21-17=4;4+16=20", "21+16=37;37+17=54", "21+16=37;37-17=20", "", ""]
    rollouts = rollouts_of(texts, *problems)
    constant = ConstantLogit(outcome=VerifierReward(task=task), task=task, weight=0.0)
    reward = calibrated(constant, calibration=Calibration(curve=Isotonic(), least_visits=1))
    first, credit = reward(rollouts), reward(rollouts)
    assert {*chain(*values(first)), *(first.starts or ())} == {0.5}, "before the first fit"
    assert credit.starts == pytest.approx([3 / 8] * 8)
    found = values(credit)
    assert found[0] == pytest.approx([3 / 5, 3 / 4])
    assert [len(row) for row in found] == [2, 1, 0, 2, 2, 2, 0, 0]
    assert all(row == found[0][: len(row)] for row in found)
    outcome = GroupRelative(normalise_std=True, epsilon=1e-6)
    for decay, firsts in ((0.0, [3 / 5 - 3 / 8] * 2), (1.0, [1 - 3 / 8, 0 - 3 / 8])):
        potential = Potential(outcome=outcome, weight=1.0, decay=decay, scale=1.0)
        advantages = potential(credit, rollouts.mask, 4)
        assert advantages[[4, 5], 0].tolist() == pytest.approx(firsts)
        assert advantages[[4, 5], -1].tolist() == pytest.approx([1 - 3 / 5, 0 - 3 / 5])
