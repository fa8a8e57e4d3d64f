"""What is compared: the finished runs of some experiments as arms, each with its baseline, over evaluation sets.

grpo                      one arm that is plainly a baseline: every other is compared with it
clipo            → grpo

grpo · dapo               several: each of the others with the one of its own setting, as papers print
clipo · dapo     → grpo · dapo
grpo · gspo
clipo · gspo     → grpo · gspo
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from experiments.analysis.evaluation_sets import columns_of, default_metric, published_beside
from experiments.analysis.preregistration import NOTHING_FIXED, Preregistration
from experiments.analysis.runs import (
    Arm,
    Refused,
    arms_by,
    checked_axes,
    distinguishing_axes,
    finished_runs,
    mixed_settings,
    names_the_start,
    value_of,
    without_common_axes,
    without_local_paths,
)
from experiments.analysis.set_table import SetTable, set_table
from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.studies.plan import START

CURVE = "val/verifier/accuracy_sampled"
SETTING = ("scale", "family", "task", "objective", "advantage", "debug")
"""Tags in which an arm and its baseline agree, where there are several baselines."""
METHOD = ("experiment", "arm", "reward", "critic", "loss")
"""Axes, and the first parts of parameters, in which a method differs from its baseline."""
MOST_NOTED = 5


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a command was asked to compare."""

    names: Sequence[str]
    """Of experiments."""
    metric: str | None = None
    """By its name for the main set; None: see :func:`default_metric`."""
    sets: Sequence[str] | None = None
    """The columns; None: all that the runs have."""
    by: Sequence[str] | None = None
    """Tags and parameters that make an arm; None: as many as keep unlike runs apart."""
    baseline: str | None = None
    """An arm's label, or a value that only one arm has; None: see :func:`baselines_of`."""
    curve: str | None = None
    """The metric of the large picture."""

    @property
    def is_plain(self) -> bool:
        """Whether it is one name and nothing else."""
        options = (self.metric, self.sets, self.by, self.baseline, self.curve)
        return len(self.names) == 1 and not any(options)


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """Arms side by side."""

    request: Request
    arms: Sequence[Arm]
    """Each baseline, below it those that are compared with it."""
    against: Mapping[str, Arm]
    """Label of an arm → the arm it is compared with."""
    table: SetTable
    left_out: Sequence[TrackedRun] = field(repr=False)
    """Finished runs of these names that count and have the metric of none of the columns."""
    fixed: Preregistration

    @property
    def metric(self) -> str:
        return self.table.metric

    @property
    def notes(self) -> list[str]:
        """What a reader should know and the table alone would hide."""
        return [
            *self.fixed.notes,
            *notes_on_arms(self.arms, starts_may_differ=self.fixed.starts_may_differ),
            *_note_on_left_out(self.left_out, self.metric),
            *note_on_baselines(self.arms, self.against),
        ]


def comparison_of(tracker: Tracker, request: Request, fixed: Preregistration = NOTHING_FIXED) -> Comparison:
    """Read a comparison from MLflow.

    Args:
        tracker: where the runs are.
        request: what is compared.
        fixed: what a study fixed, where nothing else is requested, and which runs count.

    Raises:
        Refused: for names, metrics, sets, axes or a baseline that do not exist.
    """
    finished = [run for run in finished_runs(tracker, request.names) if fixed.counts(run)]
    metric, by, baseline = request.metric, request.by, request.baseline
    if fixed.study is not None:
        metric, by = metric or fixed.study.primary.metric, by or ["arm"]
        baseline = baseline or (fixed.study.primary.baseline if "arm" in by else None)
    metric = metric or default_metric(finished)
    published = published_beside(finished, metric)
    columns = columns_of(finished, metric, request.sets, published)
    runs = [run for run in finished if any(column.metric in run.metrics for column in columns)]
    left_out = [run for run in finished if run not in runs and run.tags.get("arm") != START]
    if by is None:
        arms = without_common_axes(arms_by(runs, distinguishing_axes(runs)))
    else:
        arms = arms_by(runs, checked_axes(by, runs))
    baselines = baselines_of(arms, baseline)
    order = [place for place, other in enumerate(baselines) if other is None]
    order = [one for place in order for one in (place, *(at for at, other in enumerate(baselines) if other == place))]
    ordered = without_local_paths([arms[place] for place in order])
    shown = dict(zip(order, ordered, strict=True))
    against = {shown[place].label: shown[other] for place, other in enumerate(baselines) if other is not None}
    table = set_table(ordered, columns, metric=metric, against=against, published=published, rule=fixed.difference)
    return Comparison(request=request, arms=ordered, against=against, table=table, left_out=left_out, fixed=fixed)


def baselines_of(arms: Sequence[Arm], request: str | None) -> list[int | None]:
    """For each arm the place of its baseline; None of a baseline, and where none can be chosen.

    Args:
        arms: all of them.
        request: a label, or a value that only one arm has; None: what could be a baseline (:func:`possible_baselines`),
            and of several for each arm the only one that agrees with it in all but the method.

    Raises:
        Refused: for a request that no arm meets, or more than one.
    """
    candidates = possible_baselines(arms) if request is None else [_requested_baseline(arms, request)]
    if len(candidates) == 1:
        return [candidates[0] if place != candidates[0] else None for place in range(len(arms))]
    alike = [[one for one in candidates if _setting(arms[one]) == _setting(arm)] for arm in arms]
    return [own[0] if len(own) == 1 and place not in candidates else None for place, own in enumerate(alike)]


def possible_baselines(arms: Sequence[Arm]) -> list[int]:
    """The places of those named ``…baseline``; where none is, of those rewarded by the verifier alone."""
    named = [place for place, arm in enumerate(arms) if "baseline" in arm.label]
    verified = [
        place
        for place, arm in enumerate(arms)
        if all(value_of(run, "reward") == "verifier" for run in arm.runs.values())
    ]
    return named or verified


def _requested_baseline(arms: Sequence[Arm], request: str) -> int:
    found = [place for place, arm in enumerate(arms) if request == arm.label or request in arm.values.values()]
    if len(found) != 1:
        how = "is none of the arms" if not found else f"is {len(found)} of the arms"
        raise Refused(f"The baseline {request!r} {how}; there are: {'; '.join(arm.label for arm in arms)}")
    return found[0]


def _setting(arm: Arm) -> dict[str, str]:
    """The tags that must be alike, and of what tells arms apart all but the method."""
    run = next(iter(arm.runs.values()))
    own = {axis: value for axis, value in arm.values.items() if axis.partition(".")[0] not in METHOD}
    return {axis: value_of(run, axis) for axis in SETTING} | own


def note_on_baselines(arms: Sequence[Arm], against: Mapping[str, Arm]) -> list[str]:
    """Why an arm has no Δ, where there are several possible baselines."""
    candidates = [arms[place].label for place in possible_baselines(arms)]
    if len(candidates) < 2:
        return []
    listed = ", ".join(candidates)
    if not against:
        return [f"No Δ: {len(candidates)} arms could be the baseline ({listed}); say baseline=LABEL."]
    used = {arm.label for arm in against.values()}
    without = [arm.label for arm in arms if arm.label not in {*against, *used, *candidates}]
    why = f"no arm, or more than one, of {listed} has its {', '.join(SETTING)} and other settings; say baseline=LABEL"
    return [f"No Δ for {label}: {why}." for label in without]


def notes_on_arms(arms: Sequence[Arm], *, starts_may_differ: bool = False) -> list[str]:
    """Older runs that do not count, and arms whose runs differ in more than the seed.

    Args:
        arms: that are compared.
        starts_may_differ: the policies that an arm's runs begin from are meant to differ.
    """
    lines = []
    if older := sum(len(arm.members) - len(arm.runs) for arm in arms):
        lines.append(f"{older} older run(s) left out: a newer one of the same arm and seed counts.")
    for arm in arms:
        differing = [
            f"{axis} ({', '.join(values)})"
            for axis, values in mixed_settings(arm).items()
            if not (starts_may_differ and names_the_start(axis))
        ]
        if differing:
            lines.append(f"{arm.label}: counts as one arm, but differs in {first_few(differing, joint='; ')}.")
    return lines


def first_few(texts: Sequence[str], *, joint: str = ", ") -> str:
    """The first ``MOST_NOTED``, and how many more there are."""
    more = f" and {len(texts) - MOST_NOTED} more" if len(texts) > MOST_NOTED else ""
    return joint.join(texts[:MOST_NOTED]) + more


def _note_on_left_out(runs: Sequence[TrackedRun], metric: str) -> list[str]:
    counted = Counter(run.tags.get("arm") or run.experiment for run in runs)
    listed = ", ".join(f"{name} ({number} {'run' if number == 1 else 'runs'})" for name, number in counted.items())
    return [f"Without {metric}, and so in no table: {listed}."] if listed else []
