"""Runs sorted into the arms of a comparison: what differs by seed alone is one arm, and nothing else is averaged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from experiments.system.secrets import without_paths
from experiments.tracking.run_tree import WATCHING
from experiments.tracking.tracked_run import TrackedRun

ABSENT = "—"
BEGUN_FROM = ("policy.pretrained", "reference.pretrained")
"""Keys of the policy that a run begins from, wherever they are read: a reference is that policy again."""
FIRST_AXES = ("experiment", "arm", "scale", "family", "task", "objective", "advantage", "reward", "critic", "loss")
NAMES = ("experiment", "arm")
"""Axes whose values speak for themselves."""
NO_AXES = ("seed", "git_sha", "key", "kind", "sweep", "method")
"""Tags that do not say what was done, or that say it once more."""


@dataclass(frozen=True, kw_only=True)
class Arm:
    """The runs that differ by seed alone."""

    values: Mapping[str, str]
    """Axis → the value all its runs share."""
    runs: Mapping[str, TrackedRun]
    """Seed → its newest run."""
    members: Sequence[TrackedRun]
    """All its runs, also the older ones of a seed that ran again."""

    @property
    def label(self) -> str:
        """The experiment's and the arm's name, then what else sets the arm apart."""
        parts = [value if axis in NAMES else f"{axis}={value}" for axis, value in self.values.items()]
        return " · ".join(parts)


def value_of(run: TrackedRun, axis: str) -> str:
    """What a run says of a tag or, by its dotted path, of a parameter."""
    return run.tags.get(axis, run.params.get(axis, ABSENT))


def known_axes(runs: Sequence[TrackedRun]) -> list[str]:
    """Everything by which the runs could be set apart."""
    tags = {tag for run in runs for tag in run.tags if not tag.startswith("mlflow.")} - set(NO_AXES)
    params = dict.fromkeys(name for run in runs for name in run.params)
    first = [axis for axis in FIRST_AXES if axis in tags]
    others = [name for name in [*sorted(tags), *params] if name not in first and not _is_seed(name, runs)]
    return [*first, *(name for name in others if name != "git_sha")]


def telling_axes(runs: Sequence[TrackedRun]) -> list[str]:
    """``experiment`` and as many more as it takes for no arm to mix unlike runs: each splits what those before left."""
    axes = ["experiment"]
    for axis in filter(_decides, known_axes(runs)):
        if not _is_start_of_a_seed(axis, runs) and _parts(runs, [*axes, axis]) > _parts(runs, axes):
            axes.append(axis)
    return axes


def arms_by(runs: Sequence[TrackedRun], axes: Sequence[str]) -> list[Arm]:
    """The arms in the order in which the experiments first ran, of each seed its newest run."""

    def values(run: TrackedRun) -> tuple[str, ...]:
        return tuple(value_of(run, axis) for axis in axes)

    order = list(dict.fromkeys(map(values, runs)))
    by_arm = sorted(runs, key=lambda run: (order.index(values(run)), run.start))
    return [_arm(axes, key, list(members)) for key, members in groupby(by_arm, key=values)]


def without_common(arms: Sequence[Arm]) -> list[Arm]:
    """The arms without the axes on which all agree: what is left tells them apart. A single arm keeps its own."""
    told = [axis for axis in arms[0].values if len({arm.values[axis] for arm in arms}) > 1] if arms else []
    if not told:
        return list(arms)
    return [replace(arm, values={axis: arm.values[axis] for axis in told}) for arm in arms]


def shareable(arms: Sequence[Arm]) -> list[Arm]:
    """The arms as others may read of them: of a path its last part, with a number where two become alike."""
    seen: Counter[tuple[str, ...]] = Counter()
    shown: list[Arm] = []
    for arm in arms:
        values = {axis: without_paths(value) for axis, value in arm.values.items()}
        alike = tuple(values.values())
        seen[alike] += 1
        if seen[alike] > 1:
            values[list(values)[-1]] += f" ({seen[alike]})"
        shown.append(replace(arm, values=values))
    return shown


def mixed(arm: Arm) -> dict[str, list[str]]:
    """Tags and parameters on which the runs of an arm disagree, though they count as one."""
    values = {axis: sorted({value_of(run, axis) for run in arm.members}) for axis in _all_axes(arm)}
    return {name: several for name, several in values.items() if len(several) > 1}


def _all_axes(arm: Arm) -> list[str]:
    return [*filter(_decides, known_axes(arm.members)), "git_sha"]


def _arm(axes: Sequence[str], key: tuple[str, ...], members: Sequence[TrackedRun]) -> Arm:
    newest = {value_of(run, "seed"): run for run in members}
    runs = dict(sorted(newest.items(), key=lambda item: (len(item[0]), item[0])))
    return Arm(values=dict(zip(axes, key, strict=True)), runs=runs, members=members)


def _parts(runs: Sequence[TrackedRun], axes: Sequence[str]) -> int:
    return len({tuple(value_of(run, axis) for axis in axes) for run in runs})


def _decides(name: str) -> bool:
    return name.partition(".")[0] not in WATCHING


def _is_start_of_a_seed(name: str, runs: Sequence[TrackedRun]) -> bool:
    """Whether it is the policy that a study drew for each seed: the same in all arms of a seed, another in the next."""
    if not is_begun_from(name) or any("study" not in run.tags for run in runs):
        return False
    by_seed = {(run.tags["study"], value_of(run, "seed"), value_of(run, name)) for run in runs}
    return len(by_seed) == len({(study, seed) for study, seed, _ in by_seed})


def is_begun_from(name: str) -> bool:
    """Whether a key names the policy that a run begins from."""
    return f".{name}".endswith(tuple(f".{key}" for key in BEGUN_FROM))


def _is_seed(name: str, runs: Sequence[TrackedRun]) -> bool:
    """Whether it is the run's own seed, handed on; ``task.seed``, say, decides the problems whatever that is."""
    return name.rsplit(".", 1)[-1] == "seed" and all(
        run.params.get(name, own) == own for run in runs for own in (value_of(run, "seed"),)
    )
