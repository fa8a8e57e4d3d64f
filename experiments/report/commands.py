"""The commands that make each row again, as they were typed; of runs that did not record theirs the nearest ones."""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence

from experiments.analysis.arms import ABSENT, Arm, value_of
from experiments.report.gathered import Gathered
from experiments.report.markup import Html, element, joined, section
from experiments.system.secrets import without_paths
from experiments.track import Tracker
from experiments.tracking.origin import command, command_over_seeds
from experiments.tracking.tracked_run import TrackedRun

CHOICES = "choices.json"
ROOTS = ("name", "arm")
DIRTY, UNCOMMITTED = "-dirty", " with changes that were not committed"
STUDY = ("python", "-m", "experiments.study")
ABOUT = "Run in the project's folder, at the commit that is named. Paths of another machine are cut to their end."
OF_A_STUDY = (
    "An arm of a study is run by the study's own line, which makes the policy that it begins from; below it are the "
    "jobs that this line starts."
)
NEAREST = (
    "Marked with *: what was typed is not recorded. These are the choices that were made; single values may have been "
    "given beside them: the run's config.yaml in MLflow has them all."
)


def commands(found: Gathered) -> Html:
    """The section."""
    old = [run for run in found.runs if run.run_id not in found.origins]
    studied = any(study_line(arm) for arm in found.arms)
    told = (ABOUT, *([OF_A_STUDY] if studied else []), *([NEAREST] if old else []))
    notes = [element("p", text, class_="note") for text in told]
    return section("Commands", *notes, *(_of_arm(found, arm) for arm in found.arms))


def _of_arm(found: Gathered, arm: Arm) -> Html:
    typed = {seed: _overrides(found, run) for seed, run in arm.runs.items()}
    together = command_over_seeds(typed)
    lines = [together] if together else [command(overrides) for overrides in typed.values()]
    lines = [*commits(arm), *filter(None, [study_line(arm)]), *lines]
    known = all(run.run_id in found.origins for run in arm.runs.values())
    title = element("h3", arm.label if known else f"{arm.label} *")
    return joined([title, element("pre", without_paths("\n".join(lines)))])


def commits(arm: Arm) -> list[str]:
    """A comment for the shell with the commits of an arm's runs; none where none is known."""
    known = sorted({str(run.tags["git_sha"]) for run in arm.runs.values() if run.tags.get("git_sha")})
    said = [sha.removesuffix(DIRTY) + UNCOMMITTED * sha.endswith(DIRTY) for sha in known]
    return [f"# at {', '.join(said)}"] if known else []


def study_line(arm: Arm) -> str | None:
    """What runs all of an arm's seeds in the study it is of; None for runs of no study."""
    names = {(run.experiment, value_of(run, "arm")) for run in arm.runs.values()}
    (study, name), *others = names
    if others or name in (None, ABSENT, "null"):
        return None
    numbers = [int(seed) for seed in arm.runs if seed.isdecimal()]
    return shlex.join([*STUDY, study, f"only={name}", *([f"seeds={max(numbers) + 1}"] if numbers else [])])


def _overrides(found: Gathered, run: TrackedRun) -> Sequence[str]:
    origin = found.origins.get(run.run_id)
    return nearest(found.tracker, run) if origin is None else origin.overrides


def nearest(tracker: Tracker, run: TrackedRun) -> list[str]:
    """Overrides that make the choices of a run which did not record what was typed."""
    choices: dict[str, str] = {}
    if CHOICES in tracker.artifacts.files(run.run_id):
        choices = json.loads(tracker.artifacts.read(run.run_id, CHOICES))
    roots = {name: run.params[name] for name in ROOTS if run.params.get(name, "null") != "null"}
    told = {group: option for group, option in {**choices, **roots}.items() if option is not None}
    return [*(f"{name}={value}" for name, value in told.items()), f"seed={value_of(run, 'seed')}"]
