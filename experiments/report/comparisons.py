"""The pictures of comparisons and sweeps that MLflow holds of these experiments: dose–response, gains, swept values."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.config.hints import command_line
from experiments.report.choose import Logged, chosen, grid, told
from experiments.report.gathered import Gathered
from experiments.report.markup import Html, element, section
from experiments.system.secrets import without_paths
from experiments.tracking.tracked_run import TrackedRun

ABOUT = (
    f"As `{command_line('compare')}` and `{command_line('sweep')}` last drew them, of the runs that there were then. "
    "Equal ones once; the tables to them are in MLflow, in the run of the comparison or the sweep."
)


def comparisons(found: Gathered) -> Html:
    """The section."""
    by_kind = drawn_by_kind(found)
    if not by_kind:
        return Html("")
    picked = chosen(found.tracker.artifacts, by_kind)
    where = "in the runs of these comparisons and sweeps"
    note = element("p", ABOUT, class_="note")
    return section("Comparisons and sweeps", grid(picked), note, told(picked, where=where))


def drawn_by_kind(found: Gathered) -> dict[str, list[Logged]]:
    """Name of the picture → what each comparison or sweep has of it, the newest first; comparisons before sweeps."""
    by_kind: dict[str, list[Logged]] = {}
    for kind, owner_of in (("comparison", _comparison), ("sweep", _sweep)):
        for run in reversed(found.tracker.runs(found.names, kind=kind)):
            for path in found.tracker.artifacts.files(run.run_id):
                if path.endswith(".png"):
                    name, owner = path.removesuffix(".png"), owner_of(run)
                    logged = Logged(owner=owner, run_id=run.run_id, captions={path: f"{name}: {owner}"})
                    by_kind.setdefault(f"{kind} {name}", []).append(logged)
    return by_kind


def _comparison(run: TrackedRun) -> str:
    return f"comparison {_within(run.tags, 'key').removeprefix('compare/')}"


def _sweep(run: TrackedRun) -> str:
    """Which, and what was typed."""
    typed = without_paths(run.params.get("overrides", ""))
    return f"sweep {_within(run.tags, 'sweep')} of {run.experiment}{f', {typed}' if typed else ''}"


def _within(tags: Mapping[str, str], name: str) -> str:
    return tags.get(name, "without a name")
