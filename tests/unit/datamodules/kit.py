"""A small Countdown task whose completions are only moves."""

from __future__ import annotations

from contrastive_reasoning.tasks.countdown import BareCountdownTask, CountdownTask

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


def countdown(*, bare: bool = False, **changes: object) -> CountdownTask:
    return (BareCountdownTask if bare else CountdownTask)(**SETTINGS | changes)  # pyright: ignore[reportArgumentType]
