"""The page: one HTML file without external resources, which its policy forbids. Names and model text are escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain, zip_longest
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from experiments.analysis.evaluation_sets import GREEDY, SAMPLED, columns_of, has_metric, published_beside
from experiments.analysis.figures import CAPTION
from experiments.analysis.report import pictures
from experiments.analysis.report.gather import Gathered, commands, study_command
from experiments.analysis.runs import ABSENT, ArmRuns, Stages, value_of
from experiments.analysis.set_table import SetTable, set_table
from experiments.config.folders import without_command
from experiments.config.hints import command_line
from experiments.jobs.study_plan import Study, StudyError, notes_on_primary
from experiments.mlflow_sync import Tracker
from experiments.system.secrets import without_paths
from experiments.system.terminal import visible

SHARED = ("task", "family", "scale", "suite", "budget", "objective", "advantage", "reward", "critic", "loss")
"""Choices that are listed if all runs made the same one."""
HELD_OUT = (("evaluate", "test/completions"), ("grpo", "val/completions"))
"""Stage and table of the completions of held-out problems; the first that exists is used."""
TRAINING = (("grpo", "train/completions"),)
MOST_ARMS, MOST_COMPLETIONS, LONGEST = 12, 4, 600
"""Limits of the completions: arms, rows per table, characters per cell."""
SHOWN = ("prompt", "completion", "status", "reason", "samples_correct", "reward", "reward/", "advantage")
"""Columns of a completion; ``reward/`` stands for one column per part of the reward."""
HEADINGS = {"status": "verdict", "samples_correct": "samples"}
NOT_COMPARED = ("name", "arm", "seed", "git_sha", "output_dir")
"""Root keys that do not describe the method."""
UNKNOWN = "not recorded"


def result_of(tracker: Tracker, study: Study) -> dict[str, Any]:
    """The result of a study by the metric, arm and baseline that were fixed before its runs.

    If there is no result yet, the verdict is the reason.
    """
    from experiments.analysis.study_results import read_results  # slow: they compose today's configurations
    from experiments.analysis.study_rows import rows_of, verdict
    from experiments.jobs.finished import counted_runs, today

    try:
        arms = read_results(tracker, study, counted_runs(tracker, study, today(tracker, study)).runs)
        sentences = verdict(study, rows_of(arms, study.primary.metric, start_per_seed=study.start_per_seed))
    except StudyError as error:
        sentences = str(error)
    return {"study": study, "verdict": sentences, "notes": notes_on_primary(tracker, study)}


def page(found: Gathered, *, curve: str | None, studies: Sequence[Mapping[str, Any]]) -> str:
    """The whole document.

    ``curve`` is the metric of the large picture, None for success in validation. ``studies`` are the results of the
    studies that the runs belong to, see :func:`result_of`.
    """
    environment = Environment(
        loader=PackageLoader("experiments.analysis.report"),
        autoescape=True,
        finalize=with_visible,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["without_paths"] = without_paths
    large, small = pictures.charts(found, curve)
    first, *others = found.arms
    return environment.get_template("page.html.j2").render(
        found=found,
        studies=studies,
        experiments=[about for name in found.names if (about := experiment(found, name))],
        tables=list(tables(found)),
        gains=pictures.gains(found),
        large=large,
        small=small,
        legend=pictures.legend(found),
        about_curves=CAPTION,
        most_points=pictures.MOST_POINTS,
        undrawn=len(found.arms) - pictures.MOST_ARMS,
        comparisons=pictures.of_comparisons(found),
        command_line=command_line,
        figures=pictures.of_runs(found),
        start_too=", ".join(pictures.START_TOO),
        completions=list(completions(found)),
        most_completions=MOST_COMPLETIONS,
        longest=LONGEST,
        differences=[(arm, differences(parameters(arm), parameters(first))) for arm in others],
        commands=[(arm, found.origins.keys() >= ids_of(arm), "\n".join(commands(found, arm))) for arm in found.arms],
        is_of_study=any(study_command(arm) for arm in found.arms),
        environment=list(environment_of(found)),
    )


def with_visible(value: Any) -> Any:
    """Escapes the invisible characters of a text; returns markup and other values unchanged."""
    return visible(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def ids_of(arm: ArmRuns) -> set[str]:
    return {run.run_id for run in arm.runs.values()}


def experiment(found: Gathered, name: str) -> dict[str, Any] | None:
    """What an experiment is about, its numbers of arms, runs and seeds, and the choices that all runs share.

    None without runs.
    """
    runs = [run for run in found.runs if run.experiment == name]
    if not runs:
        return None
    values = {axis: {value_of(run, axis) for run in runs} for axis in SHARED}
    shared = [f"{axis} {value_of(runs[0], axis)}" for axis, several in values.items() if len(several) == 1]
    arms = sum(any(run.experiment == name for run in arm.runs.values()) for arm in found.arms)
    counts = {"arm": arms, "run": len(runs), "seed": len({value_of(run, "seed") for run in runs})}
    return {
        "name": name,
        "about": sorted({without_command(one.about) for run in runs if (one := found.origins.get(run.run_id))} - {""}),
        "counts": ", ".join(f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in counts.items()),
        "choices": ", ".join(one for one in shared if not one.endswith((f" {ABSENT}", " none", " null"))),
    }


def tables(found: Gathered) -> Iterable[SetTable]:
    """Yields the comparison's table; for greedy or sampled success also that of the other kind, if the runs have it."""
    table = found.comparison.table
    yield table
    other = {SAMPLED: GREEDY, GREEDY: SAMPLED}.get(table.metric)
    if other is not None and has_metric(found.runs, other):
        published = published_beside(found.runs, other)
        columns, rule = columns_of(found.runs, other, None, published), found.comparison.rule
        yield set_table(found.arms, columns, metric=other, against=table.against, published=published, rule=rule)


def completions(found: Gathered) -> Iterable[dict[str, Any]]:
    """Yields a few accepted and rejected completions of each arm's newest run: held-out ones, and those of training."""
    for arm in found.arms[:MOST_ARMS]:
        stages = found.stages.get(max(arm.runs.values(), key=lambda run: run.start).run_id, {})
        for heading, places in ((arm.label, HELD_OUT), (f"{arm.label}: what it last learned from", TRAINING)):
            if rows := next(filter(None, (_rows(found, stages, stage, name) for stage, name in places)), []):
                head = columns_of_completions(rows)
                cells = [[(key, _text(row.get(key, ""))) for key in head] for row in rows]
                yield {"heading": heading, "head": [HEADINGS.get(key, key) for key in head], "rows": cells}


def columns_of_completions(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """The columns in the order of ``SHOWN``, parts of a reward by name, without columns that are always None."""
    keys = {key for row in rows for key, value in row.items() if value is not None}
    parts = sorted(key for key in keys if key.startswith("reward/"))
    return [key for name in SHOWN for key in (parts if name == "reward/" else [name] if name in keys else [])]


def _rows(found: Gathered, stages: Stages, stage: str, name: str) -> list[Mapping[str, Any]]:
    run = stages.get(stage)
    if run is None or f"tables/{name}.json" not in found.tracker.artifacts.files(run.run_id, "tables"):
        return []
    rows = found.tracker.table(run.run_id, name)
    last = max((row.get("step", 0) for row in rows), default=0)
    return choose_completions([row for row in rows if row.get("step", 0) == last])


def choose_completions(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The first accepted and rejected completions, alternating; more of one kind if the other has too few."""
    accepted = [row for row in rows if row.get("status") == "ok"]
    refused = [row for row in rows if row.get("status") != "ok"]
    turns = chain(*zip_longest(accepted[:MOST_COMPLETIONS], refused[:MOST_COMPLETIONS]))
    return [row for row in turns if row is not None][:MOST_COMPLETIONS]


def _text(value: Any) -> str:
    text = f"{value:z.3g}" if isinstance(value, float) else str(value).strip()
    return text if len(text) <= LONGEST else f"{text[:LONGEST]} … ({len(text) - LONGEST} more characters)"


def parameters(arm: ArmRuns) -> dict[str, str]:
    """The parameters of an arm's runs; if the runs differ, all distinct values."""
    names = dict.fromkeys(name for run in arm.runs.values() for name in run.params)
    compared = [name for name in names if name not in NOT_COMPARED and name.rpartition(".")[2] != "seed"]
    values = {name: sorted({run.params.get(name, ABSENT) for run in arm.runs.values()}) for name in compared}
    return {name: " | ".join(several) for name, several in values.items()}


def differences(ours: Mapping[str, str], theirs: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(parameter, ours, theirs) for all parameters that differ.

    A value that occurs at several paths is listed at the shortest (``reward.weight``, not ``module.reward.weight``). A
    part that one side does not have is listed by its ``_target_`` only.
    """
    pairs = {key: (ours.get(key, ABSENT), theirs.get(key, ABSENT)) for key in ours.keys() | theirs.keys()}
    changed = {key: pair for key, pair in pairs.items() if pair[0] != pair[1]}

    def is_shown(key: str) -> bool:
        parts = key.split(".")
        ends = [".".join(parts[start:]) for start in range(1, len(parts) - 1)]
        targets = [".".join([*parts[:length], "_target_"]) for length in range(1, len(parts))]
        repeated = any(changed.get(end) == changed[key] for end in ends)
        return not repeated and not any(ABSENT in changed.get(target, ()) for target in targets if target != key)

    ordered = sorted(filter(is_shown, changed), key=lambda key: (key.partition(".")[0], key.count("."), key))
    return [(key, *changed[key]) for key in ordered]


def environment_of(found: Gathered) -> Iterable[tuple[str, str]]:
    """Yields the test problems, commits, hardware and software of the runs, with each value that occurs."""

    def each(values: Iterable[str]) -> str:
        return ", ".join(sorted({without_paths(value) for value in values})) or UNKNOWN

    if any("problems" in run.tags for run in found.runs):
        yield "test problems", each(run.tags.get("problems", UNKNOWN) for run in found.runs)
    yield "commit", each(run.tags.get("git_sha") or UNKNOWN for run in found.runs)
    for name, parameter in (("device", "trainer.accelerator"), ("precision", "trainer.precision")):
        yield name, each(run.params.get(parameter, UNKNOWN) for run in found.runs)
    stages = [stage for stages in found.stages.values() for stage in stages.values()]
    yield "threads", each(stage.params["threads"] for stage in stages if "threads" in stage.params)
    origins = found.origins.values()
    yield "python", each(origin.python for origin in origins)
    for package in dict.fromkeys(name for origin in origins for name in origin.packages):
        yield package, each(origin.packages.get(package, UNKNOWN) for origin in origins)
