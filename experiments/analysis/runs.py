"""Finished runs from MLflow, grouped into arms. The runs of an arm differ only in the seed; only they are averaged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pandas as pd

from experiments.config.hints import command_line, did_you_mean, not_in_mlflow
from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.mlflow_sync.describe import EVALUATED, OBSERVING
from experiments.stages.plan import WATCHERS
from experiments.system.secrets import without_paths

ABSENT = "—"
BEGUN_FROM = ("policy.pretrained", "reference.pretrained")
"""Parameters that name the policy from which a run begins; the reference of a KL penalty is the same policy."""
FIRST_AXES = ("experiment", "arm", "scale", "family", "task", "objective", "advantage", "reward", "critic", "loss")
NO_AXES = ("seed", "git_sha", "key", "kind", "sweep", "method", "problems")
"""Tags that define an arm only if requested."""
TRAINING_STAGES = ("grpo", "critic", "warm_start")
"""Stages in the order in which a metric is looked up."""
Stages = Mapping[str, TrackedRun]
"""Stage → its run."""


class Refused(ValueError):
    """A request that cannot be met, described in one sentence."""


@dataclass(frozen=True, kw_only=True)
class ArmRuns:
    """Runs that differ only in the seed."""

    values: Mapping[str, str]
    """Axis → the value that all its runs share."""
    runs: Mapping[str, TrackedRun]
    """Seed → its newest run."""
    members: Sequence[TrackedRun]
    """All its runs, including the older ones of a repeated seed."""

    @property
    def label(self) -> str:
        """The values of the axes joined by ``·``; axes other than experiment and arm as ``axis=value``."""
        named = ("experiment", "arm")
        return " · ".join(value if axis in named else f"{axis}={value}" for axis, value in self.values.items())

    def metric(self, name: str) -> dict[str, float]:
        """Seed → value, for the runs that have the metric."""
        return {seed: run.metrics[name] for seed, run in self.runs.items() if name in run.metrics}


def finished_runs(tracker: Tracker, names: Sequence[str]) -> list[TrackedRun]:
    """The finished runs of these experiments, oldest first, with the evaluation metrics of their stages.

    Raises:
        Refused: if MLflow does not have an experiment, or if an experiment has no finished run.
    """
    known = tracker.experiments()
    for name in names:
        if name not in known:
            raise Refused(f"No experiment {name!r} in MLflow at {tracker.address}; {not_in_mlflow(name, known)}")
    finished = [run for run in tracker.runs(names, kind="experiment") if run.status == "FINISHED"]
    if missing := [name for name in names if name not in {run.experiment for run in finished}]:
        command = command_line("exp", missing[0])
        raise Refused(f"None of the runs of {', '.join(missing)} has finished: run `{command}` first")
    below = stages_below(tracker, names)
    return [with_measured(run, below.get(run.run_id, {})) for run in finished]


def with_measured(run: TrackedRun, stages: Stages) -> TrackedRun:
    """An experiment's run with the last values of its stages' evaluation metrics; its own values take precedence."""
    every = [item for stage in stages.values() for item in stage.metrics.items()]
    last = {name: value for name, value in every if name.startswith(EVALUATED)}
    return replace(run, metrics=last | dict(run.metrics))


def stages_below(tracker: Tracker, names: Sequence[str]) -> dict[str, dict[str, TrackedRun]]:
    """Id of an experiment's run → stage name → the stage's run."""
    found: dict[str, dict[str, TrackedRun]] = {}
    for stage in tracker.runs(names, kind="stage"):
        found.setdefault(stage.tags.get("mlflow.parentRunId", ""), {})[stage.tags["stage"]] = stage
    return found


def stages_with(metric: str, arm: ArmRuns, below: Mapping[str, Stages]) -> list[TrackedRun]:
    """For each run of an arm, the first of ``TRAINING_STAGES`` that logged ``metric``, if any."""
    found = []
    for run in arm.runs.values():
        stages = below.get(run.run_id, {})
        found += [stages[name] for name in TRAINING_STAGES if name in stages and metric in stages[name].metrics][:1]
    return found


def log_comparison(tracker: Tracker, experiment: str, files: Sequence[Path]) -> None:
    """Logs a comparison's files as a separate run. A repeated comparison updates its run.

    If that run was deleted in MLflow, nothing is logged.
    """
    key = f"compare/{files[0].parent.name}/{files[0].stem}"
    found = tracker.find_run(experiment, key)
    if found is None:
        tags = {"key": key, "kind": "comparison", "experiment": experiment}
        run_id = tracker.create_run(experiment, name=key, start=time.time(), tags=tags, parent=None)
    elif found.lifecycle_stage == "deleted":
        return  # a person deleted it
    else:
        run_id = found.run_id
    for path in files:
        tracker.log_file(run_id, path, "")
    text = "\n".join(path.read_text(encoding="utf-8") for path in files if path.suffix == ".md")
    tracker.write_note(run_id, text, pictures=[path.name for path in files if path.suffix == ".png"])
    tracker.set_status(run_id, "FINISHED", end=time.time())


def value_of(run: TrackedRun, axis: str) -> str:
    """A run's tag, or else its parameter with this dotted path; ``ABSENT`` if it has neither."""
    return run.tags.get(axis, run.params.get(axis, ABSENT))


def settings_of(runs: Sequence[TrackedRun], axes: Collection[str]) -> pd.DataFrame:
    """A row for each run, a column for each axis."""
    # value_of is never None: groupby would leave out the rows
    return pd.DataFrame([[value_of(run, axis) for axis in axes] for run in runs], columns=list(axes), dtype=str)


def known_axes(runs: Sequence[TrackedRun]) -> list[str]:
    """All tags and parameters that may define arms."""
    tags = {tag for run in runs for tag in run.tags if not tag.startswith("mlflow.")}.difference(NO_AXES)
    params = [name for run in runs for name in run.params if name != "git_sha"]
    first = [axis for axis in FIRST_AXES if axis in tags]
    return [name for name in dict.fromkeys([*first, *sorted(tags), *params]) if not _is_own_seed(name, runs)]


def checked_axes(by: Sequence[str], runs: Sequence[TrackedRun]) -> list[str]:
    """``by`` without repetitions; raises Refused for a tag or parameter that no run has."""
    known = {axis for run in runs for axis in (*run.tags, *run.params)}
    for axis in by:
        if axis not in known:
            raise Refused(f"No run has a tag or parameter {axis!r} to group by; {did_you_mean(axis, known_axes(runs))}")
    return list(dict.fromkeys(by))


def distinguishing_axes(runs: Sequence[TrackedRun]) -> list[str]:
    """``experiment`` and the axes needed so that no arm mixes different runs; each splits the arms of those before it.

    Axes that do not affect the result, and the start that a study made for each seed, are left out.
    """
    axes, candidates = ["experiment"], [axis for axis in known_axes(runs) if _decides_result(axis, runs)]
    values = settings_of(runs, dict.fromkeys([*axes, *candidates]))
    for axis in candidates:
        splits = values.groupby([*axes, axis]).ngroups > values.groupby(axes).ngroups
        if axis not in axes and splits and not _is_start_of_a_seed(axis, runs):
            axes.append(axis)
    return axes


def arms_by(runs: Sequence[TrackedRun], axes: Sequence[str]) -> list[ArmRuns]:
    """The arms in the order of their first runs, with the newest run of each seed."""
    arms = []
    for _, rows in settings_of(runs, axes).groupby(list(axes), sort=False):
        members = sorted((runs[place] for place in rows.index), key=lambda run: run.start)
        newest = {value_of(run, "seed"): run for run in members}
        by_seed = dict(sorted(newest.items(), key=lambda item: (len(item[0]), item[0])))  # as text "10" precedes "2"
        arms.append(ArmRuns(values=dict(zip(axes, rows.iloc[0], strict=True)), runs=by_seed, members=members))
    return arms


def without_common_axes(arms: Sequence[ArmRuns]) -> list[ArmRuns]:
    """The arms without the axes on which all agree; if they agree on all, as a single arm does, all axes stay."""
    differing = [axis for axis in arms[0].values if len({arm.values[axis] for arm in arms}) > 1] if arms else []
    return [replace(arm, values={axis: arm.values[axis] for axis in differing or arm.values}) for arm in arms]


def without_local_paths(arms: Sequence[ArmRuns]) -> list[ArmRuns]:
    """The arms with paths shortened to their last part, for publication; equal results get a number."""
    seen: Counter[tuple[str, ...]] = Counter()
    shown: list[ArmRuns] = []
    for arm in arms:
        values = {axis: without_paths(value) for axis, value in arm.values.items()}
        alike = tuple(values.values())
        seen[alike] += 1
        if seen[alike] > 1:
            values[list(values)[-1]] += f" ({seen[alike]})"
        shown.append(replace(arm, values=values))
    return shown


def mixed_settings(arm: ArmRuns) -> dict[str, list[str]]:
    """Tags and parameters in which the runs of an arm differ, although they count as one arm, with their values."""
    axes = [*(axis for axis in known_axes(arm.members) if _decides_result(axis, arm.members)), "git_sha"]
    distinct = {axis: sorted({value_of(run, axis) for run in arm.members}) for axis in axes}
    return {axis: several for axis, several in distinct.items() if len(several) > 1}


def names_the_start(name: str) -> bool:
    """Whether a parameter names the policy from which a run begins, at any path that ends in a ``BEGUN_FROM`` key."""
    return f".{name}".endswith(tuple(f".{key}" for key in BEGUN_FROM))


def _decides_result(name: str, runs: Sequence[TrackedRun]) -> bool:
    """Whether a parameter can affect the result; one of a callback can, unless the callback only watches."""
    group, *below = name.split(".")
    if group != "callbacks":
        return group not in OBSERVING
    target = ".".join([group, *below[:2], "_target_"])
    return any(not run.params[target].startswith(WATCHERS) for run in runs if target in run.params)


def _is_start_of_a_seed(name: str, runs: Sequence[TrackedRun]) -> bool:
    """Whether the parameter is the start that a study made for each seed: equal in all arms of a seed of the study."""
    if not names_the_start(name) or any("study" not in run.tags for run in runs):
        return False
    by_seed = {(run.tags["study"], value_of(run, "seed"), value_of(run, name)) for run in runs}
    return len(by_seed) == len({(study, seed) for study, seed, _ in by_seed})


def _is_own_seed(name: str, runs: Sequence[TrackedRun]) -> bool:
    """Whether the parameter is a copy of the run's seed; ``task.seed`` sets the problems, independently of it."""
    is_seed = name.rpartition(".")[2] == "seed"
    return is_seed and all(run.params.get(name) in (None, value_of(run, "seed")) for run in runs)
