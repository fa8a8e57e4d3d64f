"""How a phase is counted, and how a moment of it reads."""

from __future__ import annotations

import io
import json
from math import inf, nan

import pytest
from rich.console import Console

from contrastive_reasoning.progress import JSONLines, Lines, Pace, Phase, Quiet, clock, show
from contrastive_reasoning.progress.show import PATIENCE_SECONDS, line_of

NUMBERS = {"train/reward/verifier": 0.31, "val/verifier/accuracy": 0.12345}


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock_by_hand(monkeypatch: pytest.MonkeyPatch) -> Clock:
    monkeypatch.setattr(show, "monotonic", hands := Clock())
    return hands


@pytest.mark.parametrize(("seconds", "text"), [(7.2, "0:07"), (750.0, "12:30"), (3723.0, "1:02:03")])
def test_clock(seconds: float, text: str) -> None:
    assert clock(seconds) == text


def test_a_line(clock_by_hand: Clock) -> None:
    phase = Phase(Quiet(), stage="grpo", unit="steps", total=60)
    validating = Phase(Quiet(), stage="grpo", name="validating", unit="batches", total=None)
    clock_by_hand.now = 40.0
    phase.move(12)
    line = "grpo 12/60 · 0:40 gone · 2:40 left · 0.3 steps/s · reward/verifier 0.31 · val/verifier/accuracy 0.123"
    assert line_of(phase, NUMBERS) == line
    assert line_of(validating, {}) == "grpo validating 0 · 0:40 gone"


def test_an_object(capsys: pytest.CaptureFixture[str], clock_by_hand: Clock) -> None:
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


def test_the_rate_of_a_window_and_that_of_all() -> None:
    recent, whole = Pace(1), Pace(None)
    for step, second in ((0, 0.0), (10, 1.0), (11, 2.0)):
        recent.mark(step, second)
        whole.mark(step, second)
    assert (recent.rate, whole.rate) == (1.0, 5.5)
    assert (recent.seconds_left(21), whole.seconds_left(22)) == (10.0, 2.0)


def test_nobody_asks_for_numbers_that_are_not_shown() -> None:
    def never() -> dict[str, float]:
        raise AssertionError("asked")

    stream = io.StringIO()
    with Phase(Lines(seconds_between_lines=1e6, console=Console(file=stream)), stage="a", unit="b", total=2) as phase:
        phase.move(1, never)
        assert not phase.shown
        phase.show(2, {"c/d": 1.0})
        assert phase.shown
    assert stream.getvalue().startswith("a 2/2 · 0:00 gone · 0:00 left · ")


@pytest.mark.parametrize("seconds", [PATIENCE_SECONDS, 0.9 * PATIENCE_SECONDS])
def test_a_phase_that_lasts_within_another_stands_under_it_on_a_terminal_and_goes(
    seconds: float, clock_by_hand: Clock
) -> None:
    stream = io.StringIO()
    display = Lines(seconds_between_lines=10.0, console=Console(file=stream, force_terminal=True, width=120))
    with Phase(display, stage="grpo", unit="steps", total=4) as outer:
        with Phase(display, stage="grpo", name="validating", unit="batches", total=3) as inner:
            clock_by_hand.now = seconds
            inner.show(2, {})
        both = stream.getvalue()
        outer.show(4, {"val/verifier/accuracy": 0.25})
    assert ("grpo validating" in both) == (seconds == PATIENCE_SECONDS)
    last = stream.getvalue().split("\r")[-1]
    assert "4/4" in last
    assert "0.25" in last
    assert "validating" not in last


def test_pace_forgets_what_lies_before_its_window() -> None:
    pace = Pace(2)
    assert pace.rate is None
    for step, now in enumerate((0.0, 100.0, 101.0, 102.0)):
        pace.mark(step, now)
    assert pace.rate == 1.0
    assert pace.seconds_left(10) == 7.0
    assert pace.seconds_left(-1) is None
    assert pace.seconds_left(2) == 0.0
