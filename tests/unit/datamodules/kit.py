"""A small Countdown task whose completions are only moves."""

from __future__ import annotations

from functools import partial

from tests import tiny_tasks

countdown = partial(tiny_tasks.countdown, counts=[4], train_problems=10, validation_problems=20, test_problems=20)
