"""Metrics of rollouts and rewards."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch

from contrastive_reasoning.advantages import GroupRelative
from contrastive_reasoning.rewards import Credit, StepCredit
from contrastive_reasoning.tasks.base import CORRECT_IN, Problem, Verdict
from lightning_modules.metrics import advantage_metrics, credit_metrics, reward_counts, validation_metrics
from tests.unit.callbacks.test_dynamic_sampling import Numbered, Scripted
from tests.unit.callbacks.test_rollout_generation import SAMPLED

OK, WRONG = Verdict(status="ok", reason=""), Verdict(status="wrong", reason="uses 7 twice")


def test_credit_metrics_name_parts_verdicts_and_steps() -> None:
    credit = Credit(
        outcome=torch.tensor([1.5, 0.5]),
        parts={"verifier": torch.tensor([1.0, 0.0]), "oracle": torch.tensor([1.0, 1.0])},
        steps=[
            [StepCredit(0, 1, 1.0, depth=3), StepCredit(2, 3, 1.0, depth=2)],
            [StepCredit(0, 1, 1.0, depth=3)],
        ],
        verdicts=[OK, WRONG],
    )
    metrics = credit_metrics(credit)
    assert metrics["train/reward/outcome"] == 1.0
    assert metrics["train/reward/verifier"] == 0.5
    assert metrics["train/reward/oracle"] == 1.0
    assert metrics["train/reward/steps"] == 1.5
    shares = {"ok": 0.5, "wrong": 0.5, "unparsed": 0.0, "timeout": 0.0, "error": 0.0}
    assert {name: metrics[f"train/verdict/{name}"] for name in shares} == shares, "of every status"


def test_credit_metrics_count_correct_answers_by_form() -> None:
    in_forms = [{"boxed": True, "any": True}, {"boxed": False, "any": True}, {"boxed": False, "any": False}]
    verdicts = [replace(WRONG, fields={CORRECT_IN: forms}) for forms in in_forms]
    credit = Credit(outcome=torch.zeros(3), parts={}, verdicts=verdicts)
    metrics = credit_metrics(credit)
    assert metrics["train/verifier/accuracy_boxed"] == 1 / 3
    assert metrics["train/verifier/accuracy_any"] == 2 / 3
    unknown = credit_metrics(replace(credit, verdicts=[*verdicts[:2], WRONG]))
    assert not any("accuracy_any" in name for name in unknown)


def test_group_with_one_advantage_is_informative() -> None:
    advantages = torch.tensor([[0.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, -1.0], [0.0, 0.0], [0.0, 0.0]])
    outcome = GroupRelative(normalise_std=True, epsilon=1e-6)
    assert advantage_metrics(outcome, advantages, 2) == {"train/advantage/informative_groups": 1 / 3}


FAILED = Verdict(status="error", reason="its process ended")


def test_credit_metrics_exclude_failed_rollouts_from_means() -> None:
    outcome, verifier = torch.tensor([9.0, 2.0, 9.0, 4.0]), torch.tensor([9.0, 1.0, 9.0, 0.0])
    credit = Credit(outcome=outcome, parts={"verifier": verifier}, failures={0: FAILED, 2: FAILED})
    assert credit_metrics(credit) == {"train/reward/outcome": 3.0, "train/reward/verifier": 0.5}
    assert reward_counts(credit) == {"train/reward/outcome": 2.0, "train/reward/verifier": 2.0}
    all_failed = replace(credit, failures=dict.fromkeys(range(4), FAILED), metrics={"reward/failed": 1.0})
    assert credit_metrics(all_failed) == {"train/reward/failed": 1.0}, "there is no mean"
    shares = credit_metrics(replace(all_failed, verdicts=[FAILED] * 4))
    assert (shares["train/verdict/error"], shares["train/verdict/ok"]) == (1.0, 0.0)


class ByLength(Numbered):
    """A task whose own score of a completion is its length, and in which no answer is in a box."""

    def scores(self, problem: Problem, completion: str) -> dict[str, float]:
        return {"letters": float(len(completion))}

    def verify(self, problem: Problem, completion: str) -> Verdict:
        verdict = super().verify(problem, completion)
        return replace(verdict, fields={CORRECT_IN: {"boxed": False, "any": verdict.correct}})


def test_validation_metrics_exclude_padding_problems() -> None:
    """All completions of 1 and 3 are correct, none of 0, every second of 2; the last problem only pads the batch."""
    problems = [Numbered().posed[number] for number in (1, 0, 2, 3)]
    settings: dict[str, Any] = {"sampling": SAMPLED, "seed": (0,), "pooled": False}
    greedy, sampled = (Scripted().generate(None, problems, group_size=size, **settings) for size in (1, 2))
    metrics = validation_metrics(ByLength(), greedy, sampled, count=3)
    assert metrics["verifier/accuracy"] == 1 / 3
    assert metrics["letters"] == 5
    assert metrics["verifier/accuracy_sampled"] == 0.5
    assert metrics["verifier/pass_at_2"] == 2 / 3
    assert metrics["verifier/accuracy_any"] == 1 / 3
    assert metrics["verifier/accuracy_any_sampled"] == 0.5
    assert metrics["verifier/accuracy_boxed"] == metrics["verifier/accuracy_boxed_sampled"] == 0
