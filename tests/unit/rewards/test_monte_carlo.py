"""Values that were drawn with the rollouts, put on the tokens of their steps."""

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

RIGHT = "21+16=37;37-17=20;26+20=46"
TEXTS = [RIGHT, "21+16=37;37+17=54;54+26=80", "21+16=37;37-17=20;99+20=119", ""]
VALUES = [[0.25, 0.5, None], [0.25, 0.0, None], [0.25, 0.5], []]


class Unverified:
    """A reward of 0 for all, of which nothing is known to be right."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        outcome = torch.zeros(len(rollouts))
        return Credit(outcome=outcome, parts={"nothing": outcome})


class Stories:
    """Equations as steps; right is what says 20."""

    name = "stories"

    def problems(self, split: str) -> list[Problem]:
        return []

    def scores(self, problem: Problem, completion: str) -> dict[str, float]:
        return {}

    def verify(self, problem: Problem, completion: str) -> Verdict:
        right = completion.endswith(problem.answer)
        return Verdict(status="ok" if right else "wrong", reason="" if right else "another number")

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        return parse_steps(problem, completion)


def rewarded(task: Task, rollouts: RolloutBatch, weight: float = 0.0) -> Credit:
    return MonteCarloReward(outcome=VerifierReward(task=task), task=task, weight=weight)(rollouts)


def test_by_hand(task: Task, rollouts_of) -> None:
    """The last step of the first two completions ends them: what they are worth is known. The third is right in no
    way; its third step is illegal and has no value."""
    credit = rewarded(task, replace(rollouts_of(TEXTS), prefix_values=VALUES))
    assert credit.steps is not None
    assert [[step.value for step in row] for row in credit.steps] == [
        [0.25, 0.5, 1.0],
        [0.25, 0.0, 0.0],
        [0.25, 0.5],
        [],
    ]
    assert [[step.depth for step in row] for row in credit.steps] == [[3, 2, 1], [3, 2, 1], [3, 2], []]
    assert credit.starts == pytest.approx([0.0, 1 / 3, 1 / 3, 1 / 3])
    assert credit.parts["monte_carlo"].tolist() == pytest.approx([1.75 / 3, 0.25 / 3, 0.375, 0.0])


def test_equations_of_a_story_are_deeper_one_by_one_and_none_is_a_last_number(rollouts_of) -> None:
    """Their states are the results so far; the first, of one number, looks like a finished game."""
    text = "3+4=7; 7+5=12; 12+8=20"
    story = Problem(id="a", prompt="how many?", answer="20")
    rollouts = replace(rollouts_of([text, ""], story), prefix_values=[[0.0, 0.5, None], []])
    credit = MonteCarloReward(outcome=VerifierReward(task=Stories()), task=Stories(), weight=0.0)(rollouts)
    assert credit.steps is not None
    assert [step.depth for step in credit.steps[0]] == [0, -1, -2]
    credit = replace(credit, starts=[0.5, 0.5])
    (first, second, third), rest = segments_of(credit, rollouts.mask.sum(1).tolist())
    assert [first.gain, second.gain, third.gain] == [-0.5, 0.5, 0.5]
    assert [segment.gain for segment in rest] == [-0.5]
    assert [change and change[1:] for change in changes_of(credit)[0]] == [(0.5, 0.0), (0.0, 0.5), (0.5, 1.0)]


def test_weight_zero_leaves_the_outcome_alone(task: Task, rollouts_of) -> None:
    rollouts = replace(rollouts_of(TEXTS), prefix_values=VALUES)
    outcome = VerifierReward(task=task)(rollouts).outcome
    assert torch.equal(rewarded(task, rollouts).outcome, outcome)
    weighted = rewarded(task, rollouts, weight=0.5)
    assert torch.equal(weighted.outcome, outcome + 0.5 * weighted.parts["monte_carlo"])


def test_where_a_completion_ends_the_verdict_counts_not_what_else_is_paid_for(task: Task, rollouts_of) -> None:
    both = WeightedSum(
        rewards={"verifier": VerifierReward(task=task), "format": FormatReward(task=task)},
        weights={"verifier": 1.0, "format": 0.1},
    )
    rollouts = replace(rollouts_of(TEXTS), prefix_values=VALUES)
    credit = MonteCarloReward(outcome=both, task=task, weight=0.0)(rollouts)
    assert credit.steps is not None
    assert [row[-1].value for row in credit.steps[:2]] == [1.0, 0.0]
    assert credit.starts == rewarded(task, rollouts).starts


class Sentences:
    """The task, its states being how many sentences were written: no lists of numbers."""

    def __init__(self, task: Task) -> None:
        self.inner = task

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        steps = self.inner.parse_steps(problem, completion)
        return [replace(step, state=number) for number, step in enumerate(steps, start=1)]

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def test_where_a_completion_ends_is_left_out_of_what_is_told_of_the_values(task: Task, rollouts_of) -> None:
    """Drawn values that are wrong in every pair, the verdicts at the ends of 3, 3 and 2 steps right in every one."""
    short = "21+16=37;37+17=54"
    values = [[0.2, 0.3, None], [0.4, 0.5, None], [0.4, None]]
    rollouts = replace(rollouts_of([RIGHT, TEXTS[1], short]), prefix_values=values)
    kinds: list[Any] = [task, Sentences(task)]
    for posed in kinds:
        reward = MonteCarloReward(outcome=VerifierReward(task=task), task=posed, weight=0.0)
        credit = reward(rollouts)
        assert credit.steps is not None
        assert [row[-1].value for row in credit.steps] == [1.0, 0.0, 0.0]
        told = {name: value for name, value in credit.metrics.items() if name.startswith("steps/auroc")}
        assert len(told) == 4, "two depths, all steps and siblings"
        assert set(told.values()) == {0.0}
        assert credit.metrics["steps/outcome_correlation"] < 0
        assert credit.metrics["steps/return"] == pytest.approx((0.25 + 0.45 + 0.4) / 3)


def test_each_start_is_the_mean_of_the_others_of_its_group() -> None:
    values = [1.0, 0.0, 0.0, 1.0, 1.0, 0.0]
    expected = []
    for row in range(6):
        group = range(row // 3 * 3, row // 3 * 3 + 3)
        expected.append(sum(values[other] for other in group if other != row) / 2)
    assert others_mean(values, 3) == expected
    with pytest.raises(ValueError, match="group_size must be at least 2"):
        others_mean([1.0], 1)


def test_what_is_missing_is_named(task: Task, rollouts_of) -> None:
    with pytest.raises(ValueError, match=r"needs rollouts with values of their prefixes: choose rollout=vineppo"):
        rewarded(task, rollouts_of(TEXTS))
    unverified = MonteCarloReward(outcome=Unverified(), task=task, weight=0.0)
    with pytest.raises(ValueError, match="needs an outcome that verifies, got nothing"):
        unverified(replace(rollouts_of(TEXTS), prefix_values=VALUES))


def test_a_start_is_valued_by_the_others_that_were_judged() -> None:
    values = [1.0, 0.0, 1.0, 0.0, 1.0, 1.0, 0.0, 0.0]
    assert others_mean(values, 4, {1, 3}) == [1.0, 1.0, 1.0, 1.0, 1 / 3, 1 / 3, 2 / 3, 2 / 3]
    assert others_mean([1.0, 0.0], 2, {1})[0] == 1.0, "nobody else tells: its own value, which moves nothing"
