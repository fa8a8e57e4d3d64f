"""The runs of a page, read from MLflow, and the commands that reproduce them.

Commands use the overrides that the runs recorded. For runs that recorded none, they are approximate.
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
"""The override that turns a run into a multirun. A job's overrides contain it in addition to the job's own values."""


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The runs of a comparison with their stages and origins."""

    tracker: Tracker
    comparison: Comparison
    stages: Mapping[str, Stages]
    """Id of an experiment's run → its stages."""
    origins: Mapping[str, Origin]
    """Run id → origin; older runs have none."""

    @property
    def names(self) -> Sequence[str]:
        return self.comparison.request.names

    @property
    def arms(self) -> Sequence[ArmRuns]:
        return self.comparison.table.arms

    @property
    def runs(self) -> list[TrackedRun]:
        """The counted runs: the newest of each arm and seed."""
        return [run for arm in self.arms for run in arm.runs.values()]


def gather(tracker: Tracker, comparison: Comparison) -> Gathered:
    """Reads the stages and origins of the runs that a comparison counts."""
    counted = [run.run_id for arm in comparison.table.arms for run in arm.runs.values()]
    below = stages_below(tracker, comparison.request.names)
    recorded = [run_id for run_id in counted if ORIGIN in tracker.artifacts.files(run_id)]
    return Gathered(
        tracker=tracker,
        comparison=comparison,
        stages={run_id: below.get(run_id, {}) for run_id in counted},
        origins={run_id: Origin.parse(tracker.artifacts.read(run_id, ORIGIN)) for run_id in recorded},
    )


def identity(stage: TrackedRun) -> tuple[str, str]:
    """A key that is equal for runs that share a stage; a stage without a fingerprint has a key of its own."""
    return stage.tags["stage"], stage.tags.get("fingerprint", stage.run_id)


def commands(found: Gathered, arm: ArmRuns) -> list[str]:
    """The commands that reproduce an arm's runs; approximate for runs that did not record their overrides."""
    overrides = {seed: overrides_of(found, run) for seed, run in arm.runs.items()}
    together = command_over_seeds(overrides)
    lines = [together] if together else [command(one) for one in overrides.values()]
    return [without_paths(line) for line in (*commits(arm), *filter(None, [study_command(arm)]), *lines)]


def commits(arm: ArmRuns) -> list[str]:
    """A shell comment with the commits of an arm's runs; empty if none is known."""
    known = sorted({run.tags.get("git_sha", "") for run in arm.runs.values()} - {""})
    listed = [sha.replace("-dirty", " with changes that were not committed") for sha in known]
    return [f"# at {', '.join(listed)}"] if known else []


def study_command(arm: ArmRuns) -> str | None:
    """The command that runs all seeds of an arm in its study; None if the runs are not one arm of a study."""
    names = {(run.experiment, value_of(run, "arm")) for run in arm.runs.values()}
    (study, name), *others = names
    if others or name in (ABSENT, "null"):
        return None
    numbers = [int(seed) for seed in arm.runs if seed.isdecimal()]
    seeds = [f"seeds={max(numbers) + 1}"] if numbers else []
    return shlex.join(["python", "-m", "experiments.study", study, f"only={name}", *seeds])


def overrides_of(found: Gathered, run: TrackedRun) -> Sequence[str]:
    """The recorded overrides of a run; if there are none, overrides that make the same choices."""
    if (origin := found.origins.get(run.run_id)) is not None:
        return origin.overrides
    choices: dict[str, str | None] = {}
    if "choices.json" in found.tracker.artifacts.files(run.run_id):
        choices = json.loads(found.tracker.artifacts.read(run.run_id, "choices.json"))
    choices |= {name: run.params[name] for name in ("name", "arm") if run.params.get(name, "null") != "null"}
    known = [f"{group}={option}" for group, option in choices.items() if option is not None]
    return [*known, f"seed={value_of(run, 'seed')}"]


def command(overrides: Sequence[str]) -> str:
    return shlex.join([*RUN, *_without(SWEEP, overrides)])


def command_over_seeds(overrides: Mapping[str, Sequence[str]]) -> str | None:
    """One command for runs that differ only in the seed, a multirun if there are several; else None.

    ``overrides`` are by seed.
    """
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
