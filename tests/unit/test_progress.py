"""Counting and display of phases."""

from __future__ import annotations

import io
import json
from math import inf, nan

import pytest
from rich.console import Console

from contrastive_reasoning import progress
from contrastive_reasoning.progress import JSONLines, Lines, Pace, Phase, clock

NUMBERS = {"train/reward/verifier": 0.31, "val/verifier/accuracy": 0.12345}


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock_by_hand(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(progress, "monotonic", hands := Clock())
    return hands


def test_lines_prints_progress_as_text(clock_by_hand: Clock) -> None:
    stream = io.StringIO()
    display = Lines(seconds_between_lines=30.0, console=Console(file=stream))
    phase = Phase(display, stage="grpo", unit="steps", total=60)
    validating = Phase(display, stage="grpo", name="validating", unit="batches", total=None)
    phase.move(3, lambda: pytest.fail("numbers that are not shown"))
    clock_by_hand.now = 40.0
    validating.show(0, {})
    phase.move(12, lambda: NUMBERS)
    assert stream.getvalue().splitlines() == [
        "grpo validating 0 · 0:40 gone · 0 batches/s",
        "grpo 12/60 · 0:40 gone · 2:40 left · 0.3 steps/s · reward/verifier 0.31 · val/verifier/accuracy 0.123",
    ]


def test_clock_has_hours() -> None:
    assert clock(3723.0) == "1:02:03"


def test_json_lines_prints_strict_json(capsys: pytest.CaptureFixture[str], clock_by_hand: Clock) -> None:
    phase = Phase(JSONLines(seconds_between_lines=0.0), stage="grpo", unit="steps", total=60, done=12)
    clock_by_hand.now = 40.0
    phase.display.show(phase, {"a/b": nan, "a/c": inf, "a/d": 1.5})
    assert json.loads(capsys.readouterr().out) == {
        "stage": "grpo",
        "phase": None,
        "step": 12,
        "steps": 60,
        "unit": "steps",
        "seconds_gone": 40.0,
        "seconds_left": None,
        "rate": None,
        "a/b": None,
        "a/c": None,
        "a/d": 1.5,
    }


def test_nested_phase_is_shown_on_terminal_and_removed(clock_by_hand: Clock) -> None:
    stream = io.StringIO()
    display = Lines(seconds_between_lines=10.0, console=Console(file=stream, force_terminal=True, width=120))
    with Phase(display, stage="grpo", unit="steps", total=4) as outer:
        with Phase(display, stage="grpo", name="validating", unit="batches", total=3) as inner:
            inner.move(1)
            clock_by_hand.now = 2.0
            inner.move(2)
        assert "grpo validating" in stream.getvalue()
        outer.show(4, {"val/verifier/accuracy": 0.25})
    last = stream.getvalue().split("\r")[-1]
    assert "4/4" in last
    assert "0.25" in last
    assert "validating" not in last


def test_pace_over_window_and_over_all_steps() -> None:
    recent, whole = Pace(1), Pace(None)
    assert recent.rate is None
    for step, second in ((0, 0.0), (10, 1.0), (11, 2.0)):
        recent.mark(step, second)
        whole.mark(step, second)
    assert (recent.rate, whole.rate) == (1.0, 5.5)
    assert (recent.seconds_left(21), recent.seconds_left(2), whole.seconds_left(22)) == (10.0, 0.0, 2.0)
