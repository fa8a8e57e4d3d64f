"""How well a critic's values foretell verdicts, where a step is compared with others of its problem and depth."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.critics import save_critic
from contrastive_reasoning.critics.joint import JointCritic
from contrastive_reasoning.rewards import CriticReward, VerifierReward
from contrastive_reasoning.rewards.critic_within import verdict_auroc
from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown import CountdownProblem

PROBLEMS = [CountdownProblem(numbers, 46, style="direct") for numbers in ((21, 16, 17, 26), (20, 26, 1, 2))]
TEXTS = [
    *("21+16=37;37-17=20;26+20=46", "21+26=47;47-16=31", "17+16=33;33+21=54", "26-16=10;21+17=38"),
    *("20+26=46;2-1=1;46*1=46", "20+26=46;2+1=3;46+3=49", "26-20=6;6*2=12", "20+1=21;21+2=23"),
]


@pytest.fixture
def reward(task: Task, tmp_path: Path) -> CriticReward:
    critic = JointCritic(
        value_dimension=4, width=16, blocks=1, dimension=8, join_dimension=4, pairs_per_chunk=64, seed=0
    )
    save_critic(critic, tmp_path, {})
    return CriticReward(
        outcome=VerifierReward(task=task),
        task=task,
        critic=critic,
        checkpoint=str(tmp_path),
        weight=0.0,
        temperature=0.5,
        batch_size=64,
    )


def test_pairs_of_one_problem_and_depth_count_by_loops(task: Task, reward: CriticReward, rollouts_of: Any) -> None:
    rollouts = rollouts_of(TEXTS, *PROBLEMS)
    states = []
    for row, text in enumerate(TEXTS):
        problem = rollouts.problem_of(row)
        steps = [step for step in task.parse_steps(problem, text) if step.legal and len(step.state) > 1]
        values = reward.step_values(rollouts, [steps if own == row else [] for own in range(len(TEXTS))])[row]
        right = task.verify(problem, text).correct
        states += [((row // 4, len(step.state)), right, value) for step, value in values]
    pairs = [(a, b) for (one, good, a), (other, bad, b) in product(states, states) if one == other and good and not bad]
    pooled = [(a, b) for (_, good, a), (_, bad, b) in product(states, states) if good and not bad]
    expected, over_all = (sum((a > b) + (a == b) / 2 for a, b in those) / len(those) for those in (pairs, pooled))
    assert verdict_auroc(reward, task, rollouts) == pytest.approx(expected)
    assert expected != pytest.approx(over_all)


def test_where_no_problem_has_both_verdicts_nothing_is_told(task: Task, reward: CriticReward, rollouts_of: Any) -> None:
    assert verdict_auroc(reward, task, rollouts_of([TEXTS[0]] * 4 + TEXTS[6:] * 2, *PROBLEMS)) is None
