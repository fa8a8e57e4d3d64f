"""What was asked: the first line of each experiment's file, and the choices that all its runs share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.analysis.arms import ABSENT, value_of
from experiments.report.gathered import Gathered
from experiments.report.markup import Html, element, section
from experiments.tracking.tracked_run import TrackedRun

SHARED = ("task", "family", "scale", "suite", "budget", "objective", "advantage", "reward", "critic", "loss")
"""Choices that are told where all runs made the same one."""
UNSAID = (ABSENT, "none", "null")


def question(found: Gathered) -> Html:
    """The section at the top of the page."""
    return section("Question", *(piece for name in found.names for piece in _experiment(found, name)))


def _experiment(found: Gathered, name: str) -> Iterator[Html]:
    runs = [run for run in found.runs if run.experiment == name]
    if not runs:
        return
    yield element("h3", name)
    about = sorted({found.origins[run.run_id].about for run in runs if run.run_id in found.origins} - {""})
    yield from (element("p", line) for line in about)
    arms = sum(any(run.experiment == name for run in arm.runs.values()) for arm in found.arms)
    seeds = len({value_of(run, "seed") for run in runs})
    counted = f"{_several(arms, 'arm')}, {_several(len(runs), 'run')}, {_several(seeds, 'seed')}"
    yield element("p", f"{counted}. {_shared(runs)}", class_="note")


def _shared(runs: Sequence[TrackedRun]) -> str:
    """``In all: task countdown, scale laptop.``"""
    said = []
    for axis in SHARED:
        values = {value_of(run, axis) for run in runs}
        if len(values) == 1 and not values & set(UNSAID):
            said.append(f"{axis} {values.pop()}")
    return f"In all of them: {', '.join(said)}." if said else ""


def _several(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
