"""A benchmark's score as a reward, and the sum of LongProc scores in the critic paper's later code."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from contrastive_reasoning.rewards import TaskScoreReward, WeightedSum
from contrastive_reasoning.tasks.countdown import CountdownProblem, CountdownTask
from tests.unit.rewards.conftest import Rollouts

RIGHT = "<Solution>\n21 + 16 = 37\n37 - 17 = 20\n26 + 20 = 46\n</Solution>"
WRONG = "<Solution>\n21 + 16 = 38\n</Solution>"
PROBLEM = CountdownProblem((21, 16, 17, 26), 46, style="longproc")


@pytest.fixture
def searching(task: CountdownTask) -> CountdownTask:
    return replace(task, style="longproc")


def test_weighted_sum_adds_longproc_accuracy_and_extraction_rate(
    searching: CountdownTask, rollouts_of: Rollouts
) -> None:
    parts = {
        name: TaskScoreReward(task=searching, score=f"longproc/{name}") for name in ("accuracy", "extraction_rate")
    }
    credit = WeightedSum(rewards=parts, weights={"accuracy": 4.0, "extraction_rate": 1.0})(
        rollouts_of([RIGHT, WRONG, "nothing", ""], PROBLEM)
    )
    assert credit.outcome.tolist() == [5.0, 1.0, 0.0, 0.0]
    assert torch.equal(credit.parts["longproc_accuracy"], torch.tensor([1.0, 0.0, 0.0, 0.0]))
    assert torch.equal(credit.parts["longproc_extraction_rate"], torch.tensor([1.0, 1.0, 0.0, 0.0]))


def test_unknown_score_raises_with_available_scores(searching: CountdownTask, rollouts_of: Rollouts) -> None:
    with pytest.raises(ValueError, match=r"'accuracy'.*longproc/accuracy"):
        TaskScoreReward(task=searching, score="accuracy")(rollouts_of([RIGHT], PROBLEM))
