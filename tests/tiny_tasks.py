"""Tasks for tests: a small Countdown of generated problems, and one without problems."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown import CountdownTask

SETTINGS: dict[str, Any] = {
    "style": "direct",
    "train": "generated",
    "test": "generated",
    "longproc_dir": None,
    "counts": [3, 4],
    "number_range": [1, 20],
    "target_range": [10, 50],
    "max_search_lines": None,
    "train_problems": 12,
    "validation_problems": 6,
    "test_problems": 2,
    "seed": 0,
}


def countdown(**changes: Any) -> CountdownTask:
    return CountdownTask(**SETTINGS | changes)


class PlainTask:
    """A task without problems, steps and scores. Subclasses verify."""

    name = "plain"

    def problems(self, split: str) -> Sequence[Problem]:
        return []

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        return []

    def scores(self, problem: Problem, completion: str) -> dict[str, float]:
        return {}
