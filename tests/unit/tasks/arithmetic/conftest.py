"""A small arithmetic task; its three test sets share their stories."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from contrastive_reasoning.tasks.arithmetic import ArithmeticTask

SETTINGS = {
    "test": "in_distribution",
    "instructed": False,
    "steps": [2, 4],
    "clauses": [2, 3],
    "number_range": [2, 9],
    "new_numbers": [4, 7],
    "limit": 99,
    "taught_share": 0.2,
    "first_share": 0.8,
    "both_share": 0.35,
    "train_problems": 150,
    "validation_problems": 30,
    "test_problems": 30,
    "seed": 0,
}


def arithmetic(**changes: object) -> ArithmeticTask:
    return ArithmeticTask(**{**SETTINGS, **changes})  # type: ignore[arg-type]


@pytest.fixture(scope="session")
def make_task() -> Callable[..., ArithmeticTask]:
    """Builds the task with some settings changed."""
    return arithmetic
