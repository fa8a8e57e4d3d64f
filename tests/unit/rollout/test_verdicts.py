"""The verdicts of a batch: one by one, or all at once where the task would rather."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.rollout.verdicts import verdicts_of
from contrastive_reasoning.tasks.base import Problem, Split, Step, Verdict


class Echo:
    """Correct is what repeats the gold answer."""

    name = "echo"

    def problems(self, split: Split) -> list[Problem]:
        return [Problem(id=str(n), prompt="Say it.", answer=str(n)) for n in range(2)]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return Verdict(status="ok" if completion == problem.answer else "wrong", reason="")

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        return []

    def scores(self, problem: Problem, completion: str) -> dict[str, float]:
        return {}


class Together(Echo):
    calls = 0

    def verify_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        self.calls += 1
        return [super(Together, self).verify(*pair) for pair in zip(problems, completions, strict=True)]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        raise AssertionError("asked one by one")


def rollouts() -> RolloutBatch:
    return RolloutBatch(
        problems=Echo().problems("train"),
        prompt_ids=torch.zeros(2, 1, dtype=torch.long),
        prompt_mask=torch.ones(2, 1, dtype=torch.bool),
        completion_ids=torch.zeros(4, 1, dtype=torch.long),
        mask=torch.ones(4, 1, dtype=torch.bool),
        old_log_probs=torch.zeros(4, 1),
        temperature=1.0,
        pooled=None,
        texts=["0", "1", "0", "1"],
        token_spans=[[(0, 1)]] * 4,
        finish_reasons=["stop"] * 4,
        group_size=2,
    )


def test_each_completion_is_judged_with_its_groups_problem() -> None:
    assert [verdict.correct for verdict in verdicts_of(Echo(), rollouts())] == [True, False, False, True]


def test_a_task_that_judges_together_is_asked_once() -> None:
    task = Together()
    assert verdicts_of(task, rollouts()) == verdicts_of(Echo(), rollouts())
    assert task.calls == 1
