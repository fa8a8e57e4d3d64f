"""A small Countdown task whose completions are only moves."""

from __future__ import annotations

from contrastive_reasoning.tasks.countdown import CountdownTask

SETTINGS = {
    "style": "direct",
    "train": "generated",
    "test": "generated",
    "longproc_dir": None,
    "counts": [4],
    "number_range": [1, 20],
    "target_range": [10, 50],
    "max_search_lines": None,
    "train_problems": 10,
    "validation_problems": 20,
    "test_problems": 20,
    "seed": 0,
}


def countdown(**changes: object) -> CountdownTask:
    return CountdownTask(**SETTINGS | changes)  # pyright: ignore[reportArgumentType]
