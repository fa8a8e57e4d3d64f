"""CalibratedReward: the states it is fitted to, the fit after each reward, and resuming."""

from __future__ import annotations

import copy
import io
import math
import random
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.advantages import GroupRelative, Potential
from contrastive_reasoning.critics import Calibration, EnsembleCritic, Isotonic, save_critic
from contrastive_reasoning.critics.calibration import join_examples
from contrastive_reasoning.critics.joint import JointCritic
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

PROBLEMS = [CountdownProblem(numbers, 46, style="direct") for numbers in ((21, 16, 17, 26), (20, 26, 1, 2))]
GROUP = 12


def joint(seed: int) -> JointCritic:
    return JointCritic(
        value_dimension=4, width=16, blocks=1, dimension=8, join_dimension=4, pairs_per_chunk=64, seed=seed
    )


def source(task: Task, folder: Path, **changes: Any) -> CriticReward:
    critic = changes.pop("critic", joint(0))
    save_critic(critic, folder, {})
    settings: dict[str, Any] = {
        "outcome": VerifierReward(task=task),
        "task": task,
        "critic": critic,
        "checkpoint": str(folder),
        "weight": 0.0,
        "temperature": 0.5,
        "batch_size": 64,
    }
    return CriticReward(**settings | changes)


def calibrated(source: LogitSource, **changes: Any) -> CalibratedReward:
    settings: dict[str, Any] = {
        "weight": 0.0,
        "calibration": Calibration(curve=Isotonic(), least_visits=10),
        "batches": 3,
        "refit_every": 2,
        "warmup_steps": 1,
    }
    return CalibratedReward(source=source, **settings | changes)


def random_moves(problem: CountdownProblem, rng: random.Random) -> str:
    """Returns up to 3 random moves as text."""
    state, lines = tuple(problem.fields["numbers"]), []
    for _ in range(rng.randint(0, 3)):
        move = rng.choice(legal_moves(state))
        lines.append(f"{move.a}{move.op}{move.b}={move.result}")
        state = move.state
    return ";".join(lines)


@pytest.fixture
def batches(rollouts_of) -> list[RolloutBatch]:
    rng = random.Random(0)
    solved = ["21+16=37;37-17=20;26+20=46", "20+26=46;2-1=1;46*1=46"]
    return [
        rollouts_of(
            [text for p, problem in enumerate(PROBLEMS) for text in _texts_of_group(problem, solved[p], rng)], *PROBLEMS
        )
        for _ in range(6)
    ]


def _texts_of_group(problem: CountdownProblem, solved: str, rng: random.Random) -> list[str]:
    return [solved if rng.random() < 0.4 else random_moves(problem, rng) for _ in range(GROUP)]


def flat(credit: Credit) -> list[float]:
    assert credit.steps is not None
    return [step.value for row in credit.steps for step in row]


def test_visited_states_match_loops(task: Task, batches: list[RolloutBatch]) -> None:
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


def test_first_batch_is_valued_by_sigmoid_and_then_fitted(
    task: Task, batches: list[RolloutBatch], tmp_path: Path
) -> None:
    raw, reward = source(task, tmp_path), calibrated(source(task, tmp_path))
    plain, first = raw(batches[0]), reward(batches[0])
    assert_close(flat(first), flat(plain))
    assert first.starts == pytest.approx(plain.starts)
    assert first.metrics["critic/ece"] > 0
    again = reward(batches[0])
    assert again.metrics["critic/ece"] < 0.6 * first.metrics["critic/ece"]
    assert again.metrics["critic/brier"] < first.metrics["critic/brier"]
    assert flat(again) != flat(first)
    assert torch.equal(again.outcome, plain.outcome), "weight 0: the verdict alone"


def test_weight_adds_mean_calibrated_value_to_outcome(task: Task, batches: list[RolloutBatch], tmp_path: Path) -> None:
    plain, weighted = (calibrated(source(task, tmp_path), weight=weight)(batches[0]) for weight in (0.0, 0.25))
    means = [sum(values) / max(1, len(values)) for values in ([step.value for step in row] for row in weighted.steps)]
    assert_close(weighted.outcome, plain.outcome + 0.25 * torch.tensor(means))
    with pytest.raises(ValueError, match=r"CalibratedReward.*weight 0"):
        calibrated(source(task, tmp_path, weight=0.5))


def test_metrics_use_curves_fitted_before_batch(task: Task, batches: list[RolloutBatch], tmp_path: Path) -> None:
    reward = calibrated(source(task, tmp_path), refit_every=1)
    reward(batches[0])
    before = copy.deepcopy(reward.calibration)
    credit = reward(batches[1])
    fresh = reward.seen[-1]
    undecided = fresh.of(fresh.depth > 1)
    p, share = before(undecided.logits, undecided.depth), undecided.share
    squared = undecided.visits * (share * (1 - p) ** 2 + (1 - share) * p**2)
    assert credit.metrics["critic/brier"] == pytest.approx((squared.sum() / undecided.visits.sum()).item())


def test_calibration_refits_at_interval_to_last_batches(
    task: Task, batches: list[RolloutBatch], tmp_path: Path
) -> None:
    reward, fits = calibrated(source(task, tmp_path), batches=3, refit_every=2), []
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
def test_resumed_reward_is_bitwise_equal_to_uninterrupted(
    task: Task, batches: list[RolloutBatch], tmp_path: Path, stop: int
) -> None:
    whole, stopped, resumed = (calibrated(source(task, tmp_path)) for _ in range(3))
    credits = [whole(rollouts) for rollouts in batches]
    for rollouts in batches[:stop]:
        stopped(rollouts)
    file = io.BytesIO()
    torch.save(stopped.state_dict(), file)
    file.seek(0)
    resumed.load_state_dict(torch.load(file, weights_only=True))
    for expected, rollouts in zip(credits[stop:], batches[stop:], strict=True):
        credit = resumed(rollouts)
        assert flat(credit) == flat(expected)
        assert (credit.starts, credit.metrics) == (expected.starts, expected.metrics)


def test_ensemble_mean_is_calibrated_and_disagreement_is_logged(
    task: Task, batches: list[RolloutBatch], tmp_path: Path
) -> None:
    """Loops compute the curve of the members' mean logit, and the members' spread over states with a move left."""
    ensemble = EnsembleCritic(member=lambda seed: joint(seed), size=2, seed=0)
    reward = calibrated(source(task, tmp_path, critic=ensemble), refit_every=1)
    reward(batches[0])
    before, rollouts = copy.deepcopy(reward.calibration), batches[1]
    credit = reward(rollouts)
    assert credit.steps is not None
    expected, spreads = [], []
    for row, text in enumerate(rollouts.texts):
        steps = [step for step in task.parse_steps(rollouts.problem_of(row), text) if step.legal]
        for step, (one, other) in zip(
            steps, reward.source.state_logits(rollouts, [steps])[0][0].T.tolist(), strict=True
        ):
            depth = len(step.state)
            expected.append(before(torch.tensor([(one + other) / 2]).double(), torch.tensor([depth])).item())
            spreads += [abs(1 / (1 + math.exp(-one)) - 1 / (1 + math.exp(-other))) / 2] if depth > 1 else []
    assert flat(credit) == pytest.approx(expected)
    assert credit.metrics["critic/disagreement"] == pytest.approx(2 * sum(spreads) / len(spreads), abs=1e-6)
    assert 0 < credit.metrics["critic/disagreement"] < 1


def test_begin_anew_fits_curves_to_logits_of_new_critic(
    task: Task, batches: list[RolloutBatch], tmp_path: Path
) -> None:
    """The next batch is valued as if the successor had rewarded only the batch before it."""
    folders = tmp_path / "first", tmp_path / "second"
    reward, successor = calibrated(source(task, folders[0])), source(task, folders[1], critic=joint(1))
    for rollouts in batches[:4]:
        reward(rollouts)
    former, reward.source.critic = reward.source.critic, successor.critic  # pyright: ignore
    reward.foresee(batches[3])
    reward.source.critic = former  # pyright: ignore
    file = io.BytesIO()
    torch.save(reward.state_dict(), file)
    file.seek(0)
    reward.load_state_dict(torch.load(file, weights_only=True))
    unmoved = copy.deepcopy(reward)
    reward.source.critic = successor.critic  # pyright: ignore
    reward.begin_anew()
    alone = calibrated(successor)
    alone(batches[3])
    assert flat(reward(batches[4])) == flat(alone(batches[4]))
    assert len(reward.seen) == 2
    assert flat(unmoved(batches[4])) != flat(reward(batches[4])), "what is foreseen changes nothing by itself"


class Unverified:
    def __call__(self, rollouts: RolloutBatch) -> Credit:
        return Credit(outcome=torch.zeros(len(rollouts)), parts={"luck": torch.zeros(len(rollouts))})


def test_outcome_without_verdicts_raises(task: Task, batches: list[RolloutBatch], tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"source\.outcome.*luck"):
        calibrated(source(task, tmp_path, outcome=Unverified()))(batches[0])


@pytest.mark.parametrize(("name", "value"), [("batches", 0), ("refit_every", 0), ("warmup_steps", -1)])
def test_numbers_out_of_range_raise(task: Task, tmp_path: Path, name: str, value: int) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        calibrated(source(task, tmp_path), **{name: value})


NUMBERS = (21, 16, 17)
TARGETS = (20, 54)  # 37 − 17, which few random games reach, and 37 + 17, which more reach
ORACLE_GROUP = 60


def calibrated_oracle(task: Task) -> CalibratedReward:
    oracle = OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.0)
    return calibrated(oracle, batches=2, refit_every=1)


def random_play(rng: random.Random) -> str:
    state, lines = NUMBERS, []
    while len(state) > 1:
        move = rng.choice(legal_moves(state)) if rng.random() < 0.7 else legal_moves(state)[0]
        lines.append(move.equation)
        state = move.state
    return ";".join(lines)


@pytest.fixture
def rollouts(rollouts_of) -> RolloutBatch:
    rng = random.Random(0)
    problems = [CountdownProblem(NUMBERS, target, style="direct") for target in TARGETS]
    return rollouts_of([random_play(rng) for _ in range(len(TARGETS) * ORACLE_GROUP)], *problems)


def test_calibrated_oracle_value_is_success_share_by_reachability(task: Task, rollouts: RolloutBatch) -> None:
    reward = calibrated_oracle(task)
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
    assert credit.steps is not None
    assert credit.starts is not None
    assert credit.starts == pytest.approx([share["start"]] * len(rollouts))
    for row, steps in enumerate(credit.steps):
        problem = rollouts.problem_of(row)
        first = task.parse_steps(problem, rollouts.texts[row])[0]
        assert steps[0].value == pytest.approx(share[reachable(first.state, problem.fields["target"])])


def test_one_step_credit_of_first_move_does_not_depend_on_later_moves(task: Task, rollouts: RolloutBatch) -> None:
    """First moves into the same kind of state get the same credit, however the rollout ended; all credit sums to R."""
    reward = calibrated_oracle(task)
    reward(rollouts)
    credit = reward(rollouts)
    potential = Potential(outcome=GroupRelative(normalise_std=True, epsilon=1e-6), weight=1.0, decay=0.0, scale=1.0)
    advantages = potential(credit, rollouts.mask, ORACLE_GROUP)
    assert credit.starts is not None
    assert credit.steps is not None
    assert credit.verdicts is not None
    firsts = defaultdict(set)
    for row, steps in enumerate(credit.steps):
        target = rollouts.problem_of(row).fields["target"]
        kept = reachable(task.parse_steps(rollouts.problem_of(row), rollouts.texts[row])[0].state, target)
        first, last = steps[0].first_token, steps[-1].last_token
        firsts[kept, credit.verdicts[row].correct].add(round(advantages[row, first].item(), 5))
        gained = advantages[row, first].item() + advantages[row, last].item()
        assert gained == pytest.approx(float(credit.verdicts[row].correct) - credit.starts[row], abs=1e-5)
    assert set(map(len, firsts.values())) == {1}
    assert firsts[True, True] == firsts[True, False]
    assert max(firsts[False, False]) < 0.0 < min(firsts[True, False])


def test_constant_logit_is_worth_mean_success_at_its_depth(task: Task, rollouts_of) -> None:
    """Of eight rollouts 3 succeed; 5 make a legal first move, of which 3 succeed; 4 make two moves, of which 3 do."""
    problems = [CountdownProblem(NUMBERS, target, style="direct") for target in TARGETS]
    texts = ["21+16=37;37-17=20", "21+16=37", "", "21-17=4;4+16=20", "21+16=37;37+17=54", "21+16=37;37-17=20", "", ""]
    rollouts = rollouts_of(texts, *problems)
    constant = ConstantLogit(outcome=VerifierReward(task=task), task=task, weight=0.0)
    reward = calibrated(constant, calibration=Calibration(curve=Isotonic(), least_visits=1))
    first, credit = reward(rollouts), reward(rollouts)
    assert {*flat(first), *(first.starts or ())} == {0.5}, "before the first fit"
    assert credit.starts == pytest.approx([3 / 8] * 8)
    assert credit.steps is not None
    values = [[step.value for step in row] for row in credit.steps]
    assert values[0] == pytest.approx([3 / 5, 3 / 4])
    assert [len(row) for row in values] == [2, 1, 0, 2, 2, 2, 0, 0]
    assert all(row == values[0][: len(row)] for row in values)
    outcome = GroupRelative(normalise_std=True, epsilon=1e-6)
    for decay, firsts in ((0.0, [3 / 5 - 3 / 8] * 2), (1.0, [1 - 3 / 8, 0 - 3 / 8])):
        potential = Potential(outcome=outcome, weight=1.0, decay=decay, scale=1.0)
        advantages = potential(credit, rollouts.mask, 4)
        assert advantages[[4, 5], 0].tolist() == pytest.approx(firsts)
        assert advantages[[4, 5], -1].tolist() == pytest.approx([1 - 3 / 5, 0 - 3 / 5])
