"""The oracle's values as the policy's own chances: counted by loops, and what one-step credit makes of them."""

from __future__ import annotations

import random
from collections import defaultdict

import pytest
import torch

from contrastive_reasoning.advantages import GroupRelative, Potential
from contrastive_reasoning.critics import Calibration, Isotonic
from contrastive_reasoning.rewards import CalibratedReward, FlippedOracleReward, OracleReward, VerifierReward
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown import CountdownProblem, legal_moves, reachable

NUMBERS = (21, 16, 17)
TARGETS = (20, 54)  # 37 − 17, which few plays find, and 37 + 17, which more do
GROUP = 60


def calibrated(task: Task, source: OracleReward | None = None) -> CalibratedReward:
    return CalibratedReward(
        source=source or OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.0),
        calibration=Calibration(curve=Isotonic(), least_visits=10),
        batches=2,
        refit_every=1,
        warmup_steps=1,
    )


def played(rng: random.Random) -> str:
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
    return rollouts_of([played(rng) for _ in range(len(TARGETS) * GROUP)], *problems)


def test_a_state_in_reach_is_worth_the_share_that_was_finished(task: Task, rollouts: RolloutBatch) -> None:
    reward = calibrated(task)
    reward(rollouts)
    credit = reward(rollouts)  # valued by what the first call has learned
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


def test_one_step_credit_leaves_luck_to_the_step_that_had_it(task: Task, rollouts: RolloutBatch) -> None:
    """First moves into the same kind of state get the same credit, however the rollout ended; all credit sums to R."""
    reward = calibrated(task)
    reward(rollouts)
    credit = reward(rollouts)
    potential = Potential(outcome=GroupRelative(normalise_std=True, epsilon=1e-6), weight=1.0, decay=0.0, scale=1.0)
    advantages = potential(credit, rollouts.mask, GROUP)
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


def test_before_anything_is_learned_it_is_the_oracle(task: Task, rollouts: RolloutBatch) -> None:
    steps = calibrated(task)(rollouts).steps
    assert steps is not None
    known = OracleReward(outcome=VerifierReward(task=task), task=task, weight=0.0)(rollouts).steps
    assert known is not None
    values = torch.tensor([step.value for row in steps for step in row])
    assert torch.allclose(values, torch.tensor([step.value for row in known for step in row]), atol=1e-4)


@pytest.mark.parametrize("flip", [0.0, 0.4, 1.0])
def test_of_flipped_answers_each_is_worth_what_followed_it(task: Task, rollouts: RolloutBatch, flip: float) -> None:
    """What is called in reach and what is not, by the share that ended well; where the curve may not fall, by all."""
    outcome = VerifierReward(task=task)
    source = FlippedOracleReward(outcome=outcome, task=task, weight=0.0, flip=flip, seed=1)
    reward = calibrated(task, source)
    reward(rollouts)
    credit = reward(rollouts)
    ends = defaultdict(list)
    called = []
    for row, text in enumerate(rollouts.texts):
        problem = rollouts.problem_of(row)
        called.append(source.label(problem, task.parse_steps(problem, text)[0].state))
        ends[called[-1]].append(task.verify(problem, text).correct)
    share = {label: sum(right) / len(right) for label, right in ends.items()}
    if share[0.0] > share[1.0]:
        share = dict.fromkeys(share, sum(sum(right) for right in ends.values()) / len(rollouts))
    assert credit.steps is not None
    assert "oracle_flipped" in credit.parts
    for label, steps in zip(called, credit.steps, strict=True):
        assert steps[0].value == pytest.approx(share[label])
