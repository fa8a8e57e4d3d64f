"""What a person wants compared, found in MLflow or refused in a sentence that names what there is."""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from experiments.analysis.arms import known_axes
from experiments.config.hints import command_line
from experiments.track import Tracker
from experiments.tracking.tracked_run import TrackedRun


class Refused(ValueError):
    """A wish that cannot be met, in one sentence."""


def finished_runs(tracker: Tracker, names: Sequence[str]) -> list[TrackedRun]:
    """The finished experiment runs of these names, oldest first."""
    known = tracker.experiments()
    for name in names:
        if name not in known:
            raise Refused(f"No experiment {name!r} in MLflow at {tracker.address}{near(name, known)}")
    runs = tracker.runs(names, kind="experiment")
    finished = [run for run in runs if run.status == "FINISHED"]
    missing = [name for name in names if name not in {run.experiment for run in finished}]
    if missing:
        first = command_line("exp", missing[0])
        raise Refused(f"None of the runs of {', '.join(missing)} has finished: run `{first}` first")
    return finished


def having(runs: Sequence[TrackedRun], metric: str) -> list[TrackedRun]:
    """The runs that have ``metric``."""
    found = [run for run in runs if metric in run.metrics]
    if not found:
        known = sorted({name for run in runs for name in run.metrics})
        raise Refused(f"No finished run has the metric {metric!r}{near(metric, known)}")
    return found


def checked_axes(by: Sequence[str], runs: Sequence[TrackedRun]) -> list[str]:
    """``by`` itself, if the runs know these tags and parameters."""
    known = {axis for run in runs for axis in (*run.tags, *run.params)}
    for axis in by:
        if axis not in known:
            raise Refused(f"No run has a tag or parameter {axis!r} to group by{near(axis, known_axes(runs))}")
    return list(by)


def near(wrong: str, known: Sequence[str]) -> str:
    """``; did you mean …? There are: …``"""
    if not known:
        return "; there are none yet"
    close = difflib.get_close_matches(wrong, known, n=1)
    return (f"; did you mean {close[0]}? There are: " if close else "; there are: ") + ", ".join(known)
