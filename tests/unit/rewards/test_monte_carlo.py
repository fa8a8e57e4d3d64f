"""MonteCarloReward: values that were sampled with the rollouts, on the tokens of their steps."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from contrastive_reasoning.advantages.potential import segments_of
from contrastive_reasoning.advantages.survival import changes_of
from contrastive_reasoning.rewards import Credit, FormatReward, MonteCarloReward, VerifierReward, WeightedSum
from contrastive_reasoning.rewards.monte_carlo import others_mean
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.arithmetic.equations import parse_steps
from contrastive_reasoning.tasks.base import Problem, Step, Task, Verdict
from tests.tiny_tasks import PlainTask
from tests.unit.rewards.conftest import values

RIGHT = "21+16=37;37-17=20;26+20=46"
TEXTS = [RIGHT, "21+16=37;37+17=54;54+26=80", "21+16=37;37-17=20;99+20=119", ""]
VALUES = [[0.25, 0.5, None], [0.25, 0.0, None], [0.25, 0.5], []]


class EquationTask(PlainTask):
    """A task with equations as steps; a completion is correct if it ends with the answer (here 20)."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        right = completion.endswith(problem.answer)
        return Verdict(status="ok" if right else "wrong", reason="" if right else "another number")

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        return parse_steps(problem, completion)


def monte_carlo_credit(task: Task, rollouts: RolloutBatch, weight: float = 0.0) -> Credit:
    return MonteCarloReward(outcome=VerifierReward(task=task), task=task, weight=weight)(rollouts)


def test_monte_carlo_values_match_hand_computation(task: Task, rollouts_of) -> None:
    """The value of a completion's last step is the verdict. The third completion's third step is illegal."""
    credit = monte_carlo_credit(task, replace(rollouts_of(TEXTS), prefix_values=VALUES))
    assert values(credit) == [[0.25, 0.5, 1.0], [0.25, 0.0, 0.0], [0.25, 0.5], []]
    assert [[step.depth for step in row] for row in credit.steps or ()] == [[3, 2, 1], [3, 2, 1], [3, 2], []]
    assert credit.starts == pytest.approx([0.0, 1 / 3, 1 / 3, 1 / 3])
    assert credit.parts["monte_carlo"].tolist() == pytest.approx([1.75 / 3, 0.25 / 3, 0.375, 0.0])


def test_equation_steps_have_depths_from_zero_down_and_none_is_finished(rollouts_of) -> None:
    """The states are the results so far; the first has one number, like the state of a finished game."""
    text = "3+4=7; 7+5=12; 12+8=20"
    story = Problem(id="a", prompt="how many?", answer="20")
    rollouts = replace(rollouts_of([text, ""], story), prefix_values=[[0.0, 0.5, None], []])
    credit = MonteCarloReward(outcome=VerifierReward(task=EquationTask()), task=EquationTask(), weight=0.0)(rollouts)
    assert credit.steps is not None
    assert [step.depth for step in credit.steps[0]] == [0, -1, -2]
    credit = replace(credit, starts=[0.5, 0.5])
    (first, second, third), rest = segments_of(credit, rollouts.mask.sum(1).tolist())
    assert [first.gain, second.gain, third.gain] == [-0.5, 0.5, 0.5]
    assert [segment.gain for segment in rest] == [-0.5]
    assert [change and change[1:] for change in changes_of(credit)[0]] == [(0.5, 0.0), (0.0, 0.5), (0.5, 1.0)]


def test_weight_zero_leaves_outcome_unchanged(task: Task, rollouts_of) -> None:
    rollouts = replace(rollouts_of(TEXTS), prefix_values=VALUES)
    outcome = VerifierReward(task=task)(rollouts).outcome
    assert torch.equal(monte_carlo_credit(task, rollouts).outcome, outcome)
    weighted = monte_carlo_credit(task, rollouts, weight=0.5)
    assert torch.equal(weighted.outcome, outcome + 0.5 * weighted.parts["monte_carlo"])


def test_value_of_last_step_is_verdict_without_other_rewards(task: Task, rollouts_of) -> None:
    both = WeightedSum(
        rewards={"verifier": VerifierReward(task=task), "format": FormatReward(task=task)},
        weights={"verifier": 1.0, "format": 0.1},
    )
    rollouts = replace(rollouts_of(TEXTS), prefix_values=VALUES)
    credit = MonteCarloReward(outcome=both, task=task, weight=0.0)(rollouts)
    assert [row[-1] for row in values(credit)[:2]] == [1.0, 0.0]
    assert credit.starts == monte_carlo_credit(task, rollouts).starts


class CountedSteps:
    """The task with the count of steps so far as the state, so that states are not lists of numbers."""

    def __init__(self, task: Task) -> None:
        self.inner = task

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        steps = self.inner.parse_steps(problem, completion)
        return [replace(step, state=number) for number, step in enumerate(steps, start=1)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_step_metrics_leave_out_last_steps(task: Task, rollouts_of) -> None:
    """Sampled values are wrong in every pair; the verdicts at the ends of 3, 3 and 2 steps are right in every pair."""
    short = "21+16=37;37+17=54"
    sampled = [[0.2, 0.3, None], [0.4, 0.5, None], [0.4, None]]
    rollouts = replace(rollouts_of([RIGHT, TEXTS[1], short]), prefix_values=sampled)
    kinds: list[Any] = [task, CountedSteps(task)]
    for step_task in kinds:
        reward = MonteCarloReward(outcome=VerifierReward(task=task), task=step_task, weight=0.0)
        credit = reward(rollouts)
        assert [row[-1] for row in values(credit)] == [1.0, 0.0, 0.0]
        aurocs = {name: value for name, value in credit.metrics.items() if name.startswith("steps/auroc")}
        assert len(aurocs) == 4, "two depths, all steps and siblings"
        assert set(aurocs.values()) == {0.0}
        assert credit.metrics["steps/outcome_correlation"] < 0
        assert credit.metrics["steps/return"] == pytest.approx((0.25 + 0.45 + 0.4) / 3)


def test_others_mean_averages_other_values_of_group_without_failed_rollouts() -> None:
    drawn = [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    for failed in (set[int](), {1, 3}):
        others = [[i for i in range(n // 4 * 4, n // 4 * 4 + 4) if i not in {n, *failed}] for n in range(8)]
        assert others_mean(drawn, 4, failed) == [sum(drawn[i] for i in own) / len(own) for own in others]
    assert others_mean([1.0, 0.0], 2, {1})[0] == 1.0, "nobody else tells: its own value, which moves nothing"


def test_missing_prefix_values_or_verdicts_raise(task: Task, rollouts_of) -> None:
    with pytest.raises(ValueError, match="rollout=vineppo"):
        monte_carlo_credit(task, rollouts_of(TEXTS))
    plain = Credit(outcome=torch.zeros(4), parts={})
    unverified = MonteCarloReward(outcome=lambda rollouts: plain, task=task, weight=0.0)
    with pytest.raises(ValueError, match="outcome"):
        unverified(replace(rollouts_of(TEXTS), prefix_values=VALUES))
