"""Correct, wrong and unreadable answers, and disjoint splits."""

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.echo import EchoTask

TASK = EchoTask(train_problems=50, validation_problems=20, test_problems=20)
PROBLEM = Problem(id="7", prompt="Repeat 7\n", answer="7")


def test_verdicts() -> None:
    assert [TASK.verify(PROBLEM, text).status for text in (" 7\n", "8", "seven")] == ["ok", "wrong", "unparsed"]


def test_splits_share_no_problem() -> None:
    ids = [{problem.id for problem in TASK.problems(split)} for split in ("train", "validation", "test")]
    assert [*map(len, ids)] == [50, 20, 20]
    assert len(set.union(*ids)) == 90
