"""The runs that a page is of, read from MLflow, and the commands that make them again.

Commands are those that were typed; of runs that did not record theirs the nearest ones.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from experiments.analysis.comparison import Comparison
from experiments.analysis.runs import ABSENT, ArmRuns, Stages, stages_below, value_of
from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.run_folder.reader import ORIGIN, Origin
from experiments.system.secrets import without_paths

RUN = ("python", "-m", "experiments.run")
SEED = re.compile(r"\+{0,2}seed=.*")
SWEEP = re.compile(r"\+{0,2}sweep=.*")
"""What makes a multirun of a single run: a job's own overrides have its values, and this beside them."""


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The runs of a comparison with what lies below them."""

    tracker: Tracker
    comparison: Comparison
    stages: Mapping[str, Stages]
    """By id of the experiment's run."""
    origins: Mapping[str, Origin]
    """By run id; older runs have none."""

    @property
    def names(self) -> Sequence[str]:
        return self.comparison.request.names

    @property
    def arms(self) -> Sequence[ArmRuns]:
        return self.comparison.table.arms

    @property
    def runs(self) -> list[TrackedRun]:
        """Those that count: of each arm and seed the newest."""
        return [run for arm in self.arms for run in arm.runs.values()]


def gather(tracker: Tracker, comparison: Comparison) -> Gathered:
    """Read the stages and the origins of the runs that a comparison counts."""
    counted = {run.run_id for arm in comparison.table.arms for run in arm.runs.values()}
    below = stages_below(tracker, comparison.request.names)
    recorded = [run_id for run_id in counted if ORIGIN in tracker.artifacts.files(run_id)]
    return Gathered(
        tracker=tracker,
        comparison=comparison,
        stages={run_id: below.get(run_id, {}) for run_id in counted},
        origins={run_id: Origin.parse(tracker.artifacts.read(run_id, ORIGIN)) for run_id in recorded},
    )


def identity(stage: TrackedRun) -> tuple[str, str]:
    """The same for all runs that share a stage; without a fingerprint a stage is shared by none."""
    return stage.tags["stage"], stage.tags.get("fingerprint", stage.run_id)


def commands(found: Gathered, arm: ArmRuns) -> list[str]:
    """The commands that make an arm's runs again; of runs that did not record theirs the nearest ones."""
    overrides = {seed: overrides_of(found, run) for seed, run in arm.runs.items()}
    together = command_over_seeds(overrides)
    lines = [together] if together else [command(one) for one in overrides.values()]
    return [without_paths(line) for line in (*commits(arm), *filter(None, [study_command(arm)]), *lines)]


def commits(arm: ArmRuns) -> list[str]:
    """A comment for the shell with the commits of an arm's runs; none where none is known."""
    known = sorted({str(run.tags["git_sha"]) for run in arm.runs.values() if run.tags.get("git_sha")})
    listed = [
        sha.removesuffix("-dirty") + " with changes that were not committed" * sha.endswith("-dirty") for sha in known
    ]
    return [f"# at {', '.join(listed)}"] if known else []


def study_command(arm: ArmRuns) -> str | None:
    """What runs all of an arm's seeds in the study it is of; None for runs of no study."""
    names = {(run.experiment, value_of(run, "arm")) for run in arm.runs.values()}
    (study, name), *others = names
    if others or name in (ABSENT, "null"):
        return None
    numbers = [int(seed) for seed in arm.runs if seed.isdecimal()]
    seeds = [f"seeds={max(numbers) + 1}"] if numbers else []
    return shlex.join(["python", "-m", "experiments.study", study, f"only={name}", *seeds])


def overrides_of(found: Gathered, run: TrackedRun) -> Sequence[str]:
    """As they were recorded; else those that make the same choices."""
    if (origin := found.origins.get(run.run_id)) is not None:
        return origin.overrides
    choices: dict[str, str | None] = {}
    if "choices.json" in found.tracker.artifacts.files(run.run_id):
        choices = json.loads(found.tracker.artifacts.read(run.run_id, "choices.json"))
    choices |= {name: run.params[name] for name in ("name", "arm") if run.params.get(name, "null") != "null"}
    known = [f"{group}={option}" for group, option in choices.items() if option is not None]
    return [*known, f"seed={value_of(run, 'seed')}"]


def command(overrides: Sequence[str]) -> str:
    """The line for a shell that runs this one run again."""
    return shlex.join([*RUN, *_without(SWEEP, overrides)])


def command_over_seeds(overrides: Mapping[str, Sequence[str]]) -> str | None:
    """One multirun for runs that differ by seed alone, by whose seed ``overrides`` are; None where they do not."""
    rest = {tuple(_without(SEED, _without(SWEEP, one))) for one in overrides.values()}
    if len(rest) != 1:
        return None
    (shared,) = rest
    if len(overrides) == 1:
        return command([*shared, f"seed={next(iter(overrides))}"])
    seeds = ",".join(sorted(overrides, key=lambda seed: (len(seed), seed)))
    return shlex.join([*RUN, "-m", *shared, f"seed={seeds}"])


def _without(pattern: re.Pattern[str], overrides: Sequence[str]) -> list[str]:
    return [one for one in overrides if not pattern.fullmatch(one)]
