from __future__ import annotations

from typing import cast

import torch

from contrastive_reasoning.rewards import CriticReward
from contrastive_reasoning.rewards.shaping import StepValue
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Step
from contrastive_reasoning.tasks.countdown import CountdownProblem, parse_steps, verify
from experiments.sample.question import Question
from experiments.sample.reading import readings

PROBLEM = CountdownProblem((3, 5, 8), 23, style="direct")
TEXTS = ["3*5=15;15+8=23", "3*5=16;8*5=40;40-3=37", "nothing"]


class FirstNumber:
    """Stands for a critic of which the value of every step is known: a hundredth of the first number left."""

    def step_values(self, rollouts: RolloutBatch, steps: list[list[Step]]) -> list[list[StepValue]]:
        return [[(step, step.state[0] / 100) for step in row] for row in steps]


ROLLOUTS = RolloutBatch(
    problems=[PROBLEM],
    prompt_ids=torch.ones(1, 2, dtype=torch.long),
    prompt_mask=torch.ones(1, 2, dtype=torch.bool),
    completion_ids=torch.ones(3, 9, dtype=torch.long),
    mask=torch.arange(9) < torch.tensor([[5], [9], [2]]),
    old_log_probs=torch.zeros(3, 9),
    temperature=1.0,
    pooled=None,
    texts=TEXTS,
    token_spans=[[], [], []],
    finish_reasons=["stop", "length", "stop"],
    group_size=3,
)
ASKED = Question(
    problem=PROBLEM, steps=lambda text: parse_steps(PROBLEM, text), verify=lambda text: verify(PROBLEM, text)
)


def test_each_completion_keeps_its_own_length_end_verdict_and_steps() -> None:
    found = readings(ASKED, ROLLOUTS, None)
    assert [(reading.text, reading.tokens, reading.finished) for reading in found] == [
        (TEXTS[0], 5, True),
        (TEXTS[1], 9, False),
        (TEXTS[2], 2, True),
    ]
    assert [reading.verdict and reading.verdict.status for reading in found] == ["ok", "unparsed", "unparsed"]
    judged = [[(step.step.legal, step.reachable, step.value) for step in reading.steps] for reading in found]
    assert judged == [[(True, True, None)] * 2, [(False, None, None), *[(True, False, None)] * 2], []]


def test_a_critic_values_legal_steps_and_no_others() -> None:
    found = readings(ASKED, ROLLOUTS, cast(CriticReward, FirstNumber()))
    assert [[step.value for step in reading.steps] for reading in found] == [[0.15, 0.23], [None, 0.4, 0.37], []]
