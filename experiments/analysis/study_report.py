"""The report of a study, from MLflow alone: a table on the terminal, in Markdown and LaTeX, runs as CSV, and pictures.

The pictures show success over cost. The notes name missing seeds, excluded runs, and differences in code, settings
and costs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from statistics import fmean

from experiments.analysis.comparison import first_few, notes_on_arms
from experiments.analysis.equal_cost import shared_cost
from experiments.analysis.figures import Curve, draw_curves
from experiments.analysis.runs import arms_by, log_comparison, names_the_start, value_of
from experiments.analysis.statistics import seeds_to_compare, shared_seeds
from experiments.analysis.study_results import ArmResult, Cost, SeedResult, read_results
from experiments.analysis.study_rows import ArmRow, power_sentence, rows_of, verdict
from experiments.analysis.study_table import (
    curves_as_csv,
    equivalence_table,
    family_table,
    final_table,
    other_settings_table,
    runs_as_csv,
    study_table,
)
from experiments.jobs.finished import Counted, counted_runs, lacking_starts, today
from experiments.jobs.study_plan import Study, notes_on_primary
from experiments.mlflow_sync import TrackedRun, Tracker
from experiments.system.files import write_text
from experiments.table import Table

POINTS = 60
MOST_DRAWN = 6
COSTS: dict[Cost, str] = {"tokens": "generated tokens", "seconds": "seconds of training, the critic's before it"}
TEST_BED = (
    *("task.", "policy.", "suite.", "budget.evaluate.", "budget.grpo.steps", "budget.grpo.max_completion_tokens"),
    *("budget.grpo.validation_problems", "rollout.validation_samples"),
)
"""Prefixes of the parameters that define the test and the validation curves."""
LEAST_SHARE = 0.01
"""The least relative difference from the baseline's tokens that is noted."""


def report_today(tracker: Tracker, study: Study, *, output: Path) -> list[str]:
    """Writes the report of the runs that count by today's configurations."""
    return report(tracker, study, counted_runs(tracker, study, today(tracker, study)), output=output)


def report(tracker: Tracker, study: Study, counted: Counted, *, output: Path) -> list[str]:
    """Writes the report into a folder below ``output``, logs it and prints its table.

    Returns the verdict, the caption, the notes and where the report was written.

    Raises:
        StudyError: if there is nothing to compare.
    """
    arms = read_results(tracker, study, counted.runs)
    rows = rows_of(arms, study.primary.metric, start_per_seed=study.start_per_seed)
    whole = study_table(study, rows, brief=False)
    primary = next((row for row in rows if row.name == study.primary.arm), None)
    notes = [power_sentence(study, primary and primary.gain), *notes_on_primary(tracker, study)]
    notes += notes_on(study, arms, counted)
    folder = output / study.name
    sections = {
        "Success at the end": final_table(study, arms),
        "Tests": family_table(study, arms),
        "Equivalence": equivalence_table(study, arms),
        "In other settings": other_settings_table(study, arms),
    }
    texts = {
        folder / "study.md": _as_markdown(study, rows, whole.as_markdown(), notes, sections),
        folder / "study.tex": whole.as_latex(),
        folder / "study_runs.csv": runs_as_csv(arms),
        folder / "study_curves.csv": curves_as_csv(arms),
    }
    for path, text in texts.items():
        write_text(path, text)
    drawn = choose_arms(arms, study)
    pictures = [path for cost in COSTS if (path := _draw(drawn, study, cost, folder)) is not None]
    log_comparison(tracker, study.name, [*texts, *pictures])
    study_table(study, rows, brief=True).show(wide=240)
    for name in ("Success at the end", "Tests", "Equivalence"):
        if (table := sections[name]) is not None:
            table.show()
    if others := [arm.name for arm in arms if arm not in drawn]:
        notes.append(f"In the table and not in the pictures of success: {', '.join(others)}.")
    return [verdict(study, rows), whole.caption, *notes, f"Written: {folder / 'study'}.*"]


def _as_markdown(
    study: Study,
    rows: Sequence[ArmRow],
    table: str,
    notes: Sequence[str],
    sections: Mapping[str, Table | None],
) -> str:
    about = [f"- {row.name}: {study.arms[row.name].about}" for row in rows]
    parts = [f"# {study.question}", "", verdict(study, rows), "", table.removesuffix("\n"), "", *about, "", *notes, ""]
    parts += [f"## {name}\n\n{found.as_markdown()}" for name, found in sections.items() if found]
    return "\n".join(parts)


def choose_arms(arms: Sequence[ArmResult], study: Study) -> list[ArmResult]:
    """The arms of a picture of success, in the given order: baseline, primary arm, and those with the most seeds.

    More than ``MOST_DRAWN`` lines with bands cannot be distinguished.
    """
    first = (study.primary.baseline, study.primary.arm)
    ranked = sorted(arms, key=lambda arm: (arm.name not in first, -len(arm.seeds)))
    return [arm for arm in arms if arm in ranked[:MOST_DRAWN]]


def _draw(arms: Sequence[ArmResult], study: Study, cost: Cost, folder: Path) -> Path | None:
    """Draws success over one cost, each arm up to the cost that all its seeds reach; None without the baseline's curve.

    An arm has no curve if a seed did not count the cost, or if the reached cost is below ``POINTS``.
    """
    curves = []
    for arm in arms:
        seeds = list(arm.curves(cost).values())
        if seeds and (reach := shared_cost(seeds)) >= POINTS:
            # whole numbers, as the keys of a Curve are steps; below POINTS some would coincide
            grid = [int(reach * point / POINTS) for point in range(POINTS + 1)]
            curves.append(Curve(label=arm.name, seeds=[{at: curve.at(at) for at in grid} for curve in seeds]))
    if not curves or curves[0].label != arms[0].name:
        return None
    path = folder / f"study_over_{cost}.png"
    draw_curves(curves, metric=study.curve, steps=COSTS[cost]).savefig(path, dpi=160)
    return path


def notes_on(study: Study, arms: Sequence[ArmResult], counted: Counted) -> list[str]:
    """All notes; the baseline is first in ``arms``."""
    done, per_seed = {arm.name: len(arm.seeds) for arm in arms}, study.start_per_seed
    planned = {name: arm.seeds for name, arm in study.arms.items()}
    lacking = [f"{name} {done.get(name, 0)} of {most}" for name, most in planned.items() if done.get(name, 0) < most]
    of_arms = arms_by([run for arm in arms for run in arm.runs], ["arm"])
    differing = differing_test_beds(arms, start_per_seed=per_seed)
    return [
        *([f"Seeds so far: {', '.join(lacking)}."] if lacking else []),
        *_notes_on_pairs(arms, start_per_seed=per_seed),
        *notes_on_left_out(study, counted),
        *_notes_on_commits(arms),
        *notes_on_arms(of_arms, starts_may_differ=per_seed),
        *_notes_on_costs(arms),
        *([f"The arms were not tested alike: {first_few(differing)} differ."] if differing else []),
    ]


def notes_on_left_out(study: Study, counted: Counted) -> list[str]:
    """Notes on excluded finished runs, and why."""
    beyond, unknown, others = list[TrackedRun](), list[TrackedRun](), list[TrackedRun]()
    for run in counted.others:
        arm, seed = run.tags["arm"], int(run.tags["seed"])
        is_beyond = arm in study.arms and seed not in study.seeds(arm)
        (beyond if is_beyond else unknown if seed in counted.missing else others).append(run)
    seeds = {int(run.tags["seed"]) for run in unknown}
    lacking = lacking_starts({seed: policy for seed, policy in counted.missing.items() if seed in seeds})
    listed = (
        (others, f" of another configuration left out: {arms_and_seeds(others)}."),
        (beyond, f" beyond the seeds that the study asks for left out: {arms_and_seeds(beyond)}."),
        (unknown, f" left out, {arms_and_seeds(unknown)}: {lacking}."),
    )
    return [f"{len(those)} run{'' if len(those) == 1 else 's'}{why}" for those, why in listed if those]


def arms_and_seeds(runs: Sequence[TrackedRun]) -> str:
    """``grpo 0, 1; oracle 0``"""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.tags["arm"], set()).add(int(run.tags["seed"]))
    return "; ".join(f"{arm} {', '.join(map(str, sorted(found)))}" for arm, found in seeds.items())


def _notes_on_pairs(arms: Sequence[ArmResult], *, start_per_seed: bool) -> Iterator[str]:
    """Yields the compared seeds of each arm for which not all seeds of the arm and the baseline are compared."""
    baseline, *others = arms
    why = "each seed has a start of its own" if start_per_seed else "one of the two has no other"
    for arm in others:
        ours, theirs = seeds_to_compare(arm.seeds, baseline.seeds, start_per_seed=start_per_seed)
        if (len(ours), len(theirs)) != (len(arm.seeds), len(baseline.seeds)):
            named = f"seed{'' if len(ours) == 1 else 's'} {', '.join(ours)}, which both have"
            yield f"Δ of {arm.name} is over {named if ours else 'no seed, as they share none'}: {why}."


def _notes_on_costs(arms: Sequence[ArmResult]) -> Iterator[str]:
    """Yields notes on arms not compared at equal cost, and on arms whose total tokens differ from the baseline's.

    The table compares equal numbers of batches that train the policy. Batches that only warm up a reward cost tokens
    too.
    """
    unknown = [arm.name for arm in arms if any(result.critic_seconds is None for result in arm.seeds.values())]
    for cost in ("tokens", "seconds"):
        uncounted = [arm.name for arm in arms if not arm.curves(cost)]
        if silent := [name for name in uncounted if cost == "tokens" or name not in unknown]:
            yield f"Not at equal {cost}, as not all their runs counted them: {', '.join(silent)}."
    if unknown:
        yield (
            "Not at equal seconds, as what training the critic took is not known "
            f"(from a checkpoint, or its stage did not count): {', '.join(unknown)}."
        )
    reused = Counter(result.critic for arm in arms for result in arm.seeds.values())
    pretrained = {arm.name: [result for result in arm.seeds.values() if result.critic_seconds] for arm in arms}
    listed = [
        f"{name} {fmean(one.critic_seconds or 0.0 for one in found):.0f} s, "
        f"{fmean((one.critic_seconds or 0.0) / reused[one.critic] for one in found):.0f} s shared"
        for name, found in pretrained.items()
        if found
    ]
    if listed:
        yield f"Pretraining a critic, a run's own and shared by the runs that reuse it: {'; '.join(listed)}."
    baseline, *others = arms
    shares = []
    for arm in others:
        ours, theirs = map(_mean_tokens, shared_seeds(arm.seeds, baseline.seeds))
        if ours and theirs and abs(share := ours / theirs - 1) >= LEAST_SHARE:
            shares.append(f"{arm.name} {share:+.0%}")
    if shares:
        beside = f"Tokens to the end, where success is read, beside those of {baseline.name} with the same seeds"
        yield f"{beside}, including batches that do not train the policy: {', '.join(shares)}."


def _mean_tokens(seeds: Mapping[str, SeedResult]) -> float | None:
    """The mean tokens over these seeds; None if a seed did not count them, or there are no seeds."""
    counted = [tokens for result in seeds.values() if (tokens := result.spent["tokens"]) is not None]
    return fmean(counted) if seeds and len(counted) == len(seeds) else None


def _notes_on_commits(arms: Sequence[ArmResult]) -> list[str]:
    """Notes which runs were made by which commits, if there are several.

    Runs of different commits may count together: settings decide which runs count.
    """
    made: dict[str, list[TrackedRun]] = {}
    for result in _results(arms):
        made.setdefault(", ".join(result.commits), []).append(result.run)
    listed = "; ".join(f"[{commits}] {arms_and_seeds(runs)}" for commits, runs in made.items())
    return [f"Made by different code: {listed}."] if len(made) > 1 else []


def differing_test_beds(arms: Sequence[ArmResult], *, start_per_seed: bool) -> list[str]:
    """Parameters of the test bed that differ between runs; seeds are not part of it.

    They include ``threads``, which change how much is computed per second, and the processor, if it was recorded. With
    ``start_per_seed`` the policy that runs begin from only has to be the same for all arms of a seed.
    """
    runs = [run for arm in arms for run in arm.runs]
    differing = []
    for name in dict.fromkeys(name for run in runs for name in run.params if name.startswith(TEST_BED)):
        by_seed = start_per_seed and names_the_start(name)
        values = {(run.tags["seed"] if by_seed else "", value_of(run, name)) for run in runs}
        if not name.endswith("seed") and len(values) > len({seed for seed, _ in values}):
            differing.append(name)
    threads = {tuple(result.threads) for result in _results(arms)}
    if len(threads) > 1 or any(len(each) > 1 for each in threads):
        differing.append("threads")
    if len({*chain.from_iterable(result.processors for result in _results(arms))}) > 1:
        differing.append("processor")
    return differing


def _results(arms: Sequence[ArmResult]) -> Iterable[SeedResult]:
    return chain.from_iterable(arm.seeds.values() for arm in arms)
