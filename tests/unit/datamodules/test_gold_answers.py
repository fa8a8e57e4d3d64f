"""Batches of gold answers: which problems they hold, and that they depend on seed and number alone."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from contrastive_reasoning.tasks.base import Problem, Split
from datamodules.gold_answers import GoldAnswers, GoldCorpus

PROBLEMS = [Problem(id=str(i), prompt=f"{i}+{i}=", answer=str(2 * i) if i % 2 else "") for i in range(10)]


def problems(split: Split) -> Sequence[Problem]:
    return {"train": PROBLEMS[:8], "validation": PROBLEMS[8:], "test": []}[split]


TASK: Any = SimpleNamespace(name="sums", problems=problems)


def test_batches_hold_problems_with_gold_of_their_split() -> None:
    data = GoldAnswers(task=TASK, batch_size=64, seed=0, validation_batches=1, workers=0)
    assert set(data.batch(3)) == {("1+1=", "2"), ("3+3=", "6"), ("5+5=", "10"), ("7+7=", "14")}
    assert set(data.batch(0, split="validation")) == {("9+9=", "18")}
    again = GoldAnswers(task=TASK, batch_size=64, seed=0, validation_batches=1, workers=0)
    assert again.batch(3) == data.batch(3) != data.batch(4)


def test_corpus_holds_prompts_and_answers_of_the_first_training_problems() -> None:
    assert GoldCorpus(task=TASK, problems=2)() == ["1+1=", "2", "3+3=", "6"]
