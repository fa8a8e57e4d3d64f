"""A small arithmetic task; its three test sets share their stories."""

from __future__ import annotations

from typing import Any

from contrastive_reasoning.tasks.arithmetic import ArithmeticTask

SETTINGS: dict[str, Any] = {
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
    "seed": 0,
    "train_problems": 150,
    "validation_problems": 30,
    "test_problems": 30,
}


def arithmetic(**changes: Any) -> ArithmeticTask:
    return ArithmeticTask(**SETTINGS | changes)
