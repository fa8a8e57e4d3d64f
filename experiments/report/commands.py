"""The commands that make each row again, as they were typed; of runs that did not record theirs the nearest ones."""

from __future__ import annotations

import json
from collections.abc import Sequence

from experiments.arms import Arm, value_of
from experiments.local_paths import without_paths
from experiments.origin import command, command_over_seeds
from experiments.report.gathered import Gathered
from experiments.report.markup import Html, element, joined, section
from experiments.track import RunRecord, Tracker

CHOICES = "choices.json"
ROOTS = ("name", "arm")
ABOUT = "Run in the project's folder, at the commit named below. Paths of another machine are cut to their end."
NEAREST = (
    "Marked with *: what was typed is not recorded. These are the choices that were made; single values may have been "
    "given beside them: the run's config.yaml in MLflow has them all."
)


def commands(found: Gathered) -> Html:
    """The section."""
    old = [run for run in found.runs if run.run_id not in found.origins]
    notes = [element("p", text, class_="note") for text in (ABOUT, *([NEAREST] if old else []))]
    return section("Commands", *notes, *(_of_arm(found, arm) for arm in found.arms))


def _of_arm(found: Gathered, arm: Arm) -> Html:
    typed = {seed: _overrides(found, run) for seed, run in arm.runs.items()}
    together = command_over_seeds(typed)
    lines = [together] if together else [command(overrides) for overrides in typed.values()]
    known = all(run.run_id in found.origins for run in arm.runs.values())
    title = element("h3", arm.label if known else f"{arm.label} *")
    return joined([title, element("pre", without_paths("\n".join(lines)))])


def _overrides(found: Gathered, run: RunRecord) -> Sequence[str]:
    origin = found.origins.get(run.run_id)
    return nearest(found.tracker, run) if origin is None else origin.overrides


def nearest(tracker: Tracker, run: RunRecord) -> list[str]:
    """Overrides that make the choices of a run which did not record what was typed."""
    choices: dict[str, str] = {}
    if CHOICES in tracker.artifacts.files(run.run_id):
        choices = json.loads(tracker.artifacts.read(run.run_id, CHOICES))
    roots = {name: run.params[name] for name in ROOTS if run.params.get(name, "null") != "null"}
    told = {group: option for group, option in {**choices, **roots}.items() if option is not None}
    return [*(f"{name}={value}" for name, value in told.items()), f"seed={value_of(run, 'seed')}"]
