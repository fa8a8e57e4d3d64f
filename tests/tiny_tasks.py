"""A small Countdown task of generated problems, for tests."""

from __future__ import annotations

from typing import Any

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
