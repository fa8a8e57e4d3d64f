"""Comparison of the finished runs of experiments as arms, each with its baseline, over evaluation sets.

grpo                      one possible baseline: every other arm is compared with it
clipo            → grpo

grpo · dapo               several: every other arm is compared with the one of its own setting, as in papers
clipo · dapo     → grpo · dapo
grpo · gspo
clipo · gspo     → grpo · gspo

A study fixes in advance which of its runs count and, if it is compared alone, the metric and the baseline.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from experiments.analysis.evaluation_sets import columns_of, default_metric, published_beside
from experiments.analysis.runs import (
    ArmRuns,
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
from experiments.analysis.statistics import Rule, difference_in_a_study, difference_over_shared_seeds
from experiments.config.hints import command_line
from experiments.jobs.study_plan import START, Study
from experiments.mlflow_sync import TrackedRun, Tracker

CURVE = "val/verifier/accuracy_sampled"
SETTING = ("scale", "family", "task", "objective", "advantage", "debug")
"""Tags that an arm and its baseline must share if there are several baselines."""
CHOICE = "baseline=LABEL (with make and spaces in the label: over=\"baseline='LABEL'\")"
"""How a user chooses the baseline."""
METHOD = ("experiment", "arm", "reward", "critic", "loss")
"""Axes, and first parts of parameter names, that may differ between an arm and its baseline."""
MOST_NOTED = 5


@dataclass(frozen=True, kw_only=True)
class Request:
    """The arguments of a comparison."""

    names: Sequence[str]
    metric: str | None = None
    """Its name for the main set; None: see :func:`default_metric`."""
    sets: Sequence[str] | None = None
    """The columns; None: all sets that the runs have."""
    by: Sequence[str] | None = None
    """Tags and parameters that define an arm; None: those needed to separate runs with different settings."""
    baseline: str | None = None
    """An arm's label, or a value that only one arm has; None: chosen by :func:`baselines_of`."""
    curve: str | None = None


@dataclass(frozen=True, kw_only=True)
class Preregistration:
    """What the studies among the experiments fix before their runs."""

    studies: Collection[str] = ()
    """Names of the studies; every finished run of another experiment counts."""
    run_ids: Collection[str] = ()
    """The runs of the studies that count."""
    study: Study | None = None
    """The study, if it is compared alone; it fixes metric and baseline."""
    notes: Sequence[str] = ()
    """Notes on the counted and the excluded runs."""

    @property
    def rule(self) -> Rule:
        """The rule that chooses the seeds over which an arm is compared with its baseline."""
        if self.study is None:
            return difference_over_shared_seeds
        return partial(difference_in_a_study, start_per_seed=self.study.start_per_seed)


NOTHING_FIXED = Preregistration()


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The arms side by side, each baseline above the arms that are compared with it."""

    request: Request
    table: SetTable
    rule: Rule
    notes: Sequence[str]
    """Facts that the reader needs and the table does not show."""


def preregistration(tracker: Tracker, studies: Sequence[Study], *, alone: bool) -> Preregistration:
    """The preregistration of these studies; ``alone``: nothing else is compared.

    Raises:
        StudyError: for a study that MLflow does not have, or with finished runs of which none counts today.
    """
    if not studies:
        return NOTHING_FIXED
    from experiments.analysis.study_report import notes_on_left_out  # slow: they compose today's configurations
    from experiments.jobs.finished import counted_runs, today

    run_ids, notes = list[str](), list[str]()
    for study in studies:
        counted = counted_runs(tracker, study, today(tracker, study))
        run_ids += [run.run_id for run in counted.runs]
        report = command_line("compare", study.called or study.name)
        notes.append(f"Of the study {study.name} the runs of today's configuration count; {report} shows its report.")
        notes += notes_on_left_out(study, counted)
    only = studies[0] if alone and len(studies) == 1 else None
    return Preregistration(studies=[study.name for study in studies], run_ids=run_ids, study=only, notes=notes)


def comparison_of(tracker: Tracker, request: Request, fixed: Preregistration = NOTHING_FIXED) -> Comparison:
    """Reads a comparison from MLflow; ``fixed`` gives the runs that count, and defaults for metric, axes and baseline.

    Raises:
        Refused: for names, metrics, sets, axes or a baseline that do not exist.
    """
    finished = [
        run
        for run in finished_runs(tracker, request.names)
        if run.experiment not in fixed.studies or run.run_id in fixed.run_ids
    ]
    metric, by, baseline = request.metric, request.by, request.baseline
    if fixed.study is not None:
        metric, by = metric or fixed.study.primary.at_the_end, by or ["arm"]
        baseline = baseline or (fixed.study.primary.baseline if "arm" in by else None)
    metric = metric or default_metric(finished)
    published = published_beside(finished, metric)
    columns = columns_of(finished, metric, request.sets, published)
    runs = [run for run in finished if any(column.metric in run.metrics for column in columns)]
    if by is None:
        arms = without_common_axes(arms_by(runs, distinguishing_axes(runs)))
    else:
        arms = arms_by(runs, checked_axes(by, runs))
    baselines = baselines_of(arms, baseline)
    first = [place if other is None else other for place, other in enumerate(baselines)]
    # each baseline, then its arms; the sort keeps their order
    order = sorted(range(len(arms)), key=lambda place: (first[place], baselines[place] is not None))
    shown = dict(zip(order, without_local_paths([arms[place] for place in order]), strict=True))
    against = {shown[place].label: shown[other] for place, other in enumerate(baselines) if other is not None}
    ordered = [*shown.values()]
    notes = [
        *fixed.notes,
        *notes_on_arms(ordered, starts_may_differ=fixed.study is not None and fixed.study.start_per_seed),
        *_note_on_left_out([run for run in finished if run not in runs and run.tags.get("arm") != START], metric),
        *note_on_baselines(ordered, against),
    ]
    table = set_table(ordered, columns, metric=metric, against=against, published=published, rule=fixed.rule)
    return Comparison(request=request, table=table, rule=fixed.rule, notes=notes)


def baselines_of(arms: Sequence[ArmRuns], request: str | None) -> list[int | None]:
    """For each arm the index of its baseline; None for a baseline itself, and if none can be chosen.

    A request is a label, or a value that only one arm has. Without a request the candidates are
    :func:`possible_baselines`. If there are several, an arm's baseline is the only candidate that agrees with it in
    everything but the method.

    Raises:
        Refused: for a request that matches no arm, or more than one.
    """
    candidates = possible_baselines(arms)
    if request is not None:
        candidates = [place for place, arm in enumerate(arms) if request in (arm.label, *arm.values.values())]
        if len(candidates) != 1:
            how = f"is {len(candidates) or 'none'} of the arms"
            raise Refused(f"The baseline {request!r} {how}; there are: {'; '.join(arm.label for arm in arms)}")
    if len(candidates) == 1:
        return [candidates[0] if place != candidates[0] else None for place in range(len(arms))]
    alike = [[one for one in candidates if _setting(arms[one]) == _setting(arm)] for arm in arms]
    return [own[0] if len(own) == 1 and place not in candidates else None for place, own in enumerate(alike)]


def possible_baselines(arms: Sequence[ArmRuns]) -> list[int]:
    """The indices of arms with ``baseline`` in their label; if there are none, those with the reward ``verifier``."""
    named = [place for place, arm in enumerate(arms) if "baseline" in arm.label]
    rewards = [{value_of(run, "reward") for run in arm.runs.values()} for arm in arms]
    verified = [place for place, reward in enumerate(rewards) if reward == {"verifier"}]
    return named or verified


def _setting(arm: ArmRuns) -> dict[str, str]:
    """The tags that must agree, and the arm's own axes without those of the method."""
    run = next(iter(arm.runs.values()))
    own = {axis: value for axis, value in arm.values.items() if axis.partition(".")[0] not in METHOD}
    return {axis: value_of(run, axis) for axis in SETTING} | own


def note_on_baselines(arms: Sequence[ArmRuns], against: Mapping[str, ArmRuns]) -> list[str]:
    """Notes on why an arm has no Δ, if there are several possible baselines."""
    candidates = [arms[place].label for place in possible_baselines(arms)]
    if len(candidates) < 2:
        return []
    listed = ", ".join(candidates)
    if not against:
        return [f"No Δ: {len(candidates)} arms could be the baseline ({listed}); choose one with {CHOICE}."]
    used = {arm.label for arm in against.values()}
    without = [arm.label for arm in arms if arm.label not in {*against, *used, *candidates}]
    settings = f"{', '.join(SETTING)} and other settings"
    why = f"no arm, or more than one, of {listed} has its {settings}; choose one with {CHOICE}"
    return [f"No Δ for {label}: {why}." for label in without]


def notes_on_arms(arms: Sequence[ArmRuns], *, starts_may_differ: bool = False) -> list[str]:
    """Notes on older runs that do not count, and on arms whose runs differ in more than the seed.

    With ``starts_may_differ`` they may also differ in the policy that they start from.
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
    """The first ``MOST_NOTED`` texts, and how many more there are."""
    more = f" and {len(texts) - MOST_NOTED} more" if len(texts) > MOST_NOTED else ""
    return joint.join(texts[:MOST_NOTED]) + more


def _note_on_left_out(runs: Sequence[TrackedRun], metric: str) -> list[str]:
    counted = Counter(run.tags.get("arm") or run.experiment for run in runs)
    listed = ", ".join(f"{name} ({number} {'run' if number == 1 else 'runs'})" for name, number in counted.items())
    return [f"Without {metric}, and so in no table: {listed}."] if listed else []
