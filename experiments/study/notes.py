"""What a reader of a study's table should know beside it: what lacks, what was left out, what was not alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from experiments.analysis.arms import arms_by, is_begun_from, value_of
from experiments.analysis.seeds import compared, shared
from experiments.compare import notes as notes_on_arms
from experiments.study.finished import lacking_starts
from experiments.study.plan import Study
from experiments.study.results import ArmResult, SeedResult
from experiments.tracking.tracked_run import TrackedRun

TEST_BED = (
    *("task.", "policy.", "suite.", "budget.evaluate.", "budget.grpo.steps", "budget.grpo.max_completion_tokens"),
    *("budget.grpo.validation_problems", "rollout.validation_samples"),
)
"""Beginnings of parameters: of the test, and of what the curves are of."""
MOST_NOTED = 5
TOLD = 0.01
"""From this share on an arm's tokens are another number than the baseline's."""


def notes_on(
    study: Study, arms: Sequence[ArmResult], left_out: Sequence[TrackedRun], missing: Mapping[int, str]
) -> list[str]:
    """What the table alone would hide.

    Args:
        study: whose arms and seeds were planned.
        arms: that are compared.
        left_out: finished runs that are not.
        missing: see :class:`experiments.study.finished.Today`.
    """
    done = {arm.name: len(arm.seeds) for arm in arms}
    planned = {name: arm.seeds for name, arm in study.arms.items()}
    lacking = [f"{name} {done.get(name, 0)} of {most}" for name, most in planned.items() if done.get(name, 0) < most]
    lines = [f"Seeds so far: {', '.join(lacking)}."] if lacking else []
    lines += notes_on_pairs(arms, start_per_seed=study.start_per_seed)
    lines += notes_on_left_out(study, left_out, missing)
    counted = [run for arm in arms for run in arm.runs]
    lines += notes_on_commits(arms)
    lines += notes_on_arms(arms_by(counted, ["arm"]), starts_may_differ=study.start_per_seed)
    lines += [*notes_on_costs(arms), *notes_on_all_tokens(arms)]
    differing = differing_test_beds(arms, start_per_seed=study.start_per_seed)
    if differing:
        more = f" and {len(differing) - MOST_NOTED} more" if len(differing) > MOST_NOTED else ""
        lines.append(f"The arms were not tested alike: {', '.join(differing[:MOST_NOTED])}{more} differ.")
    return lines


def notes_on_left_out(study: Study, runs: Sequence[TrackedRun], missing: Mapping[int, str]) -> list[str]:
    """Which finished runs are in no table, and why; ``missing``: see :class:`experiments.study.finished.Today`."""
    beyond = [run for run in runs if _is_beyond(study, run)]
    others = [run for run in runs if run not in beyond]
    untold = [run for run in others if int(run.tags["seed"]) in missing]
    others = [run for run in others if run not in untold]
    lines = [
        f"{_several(those)} {why} left out: {arms_and_seeds(those)}."
        for why, those in (
            ("of another configuration", others),
            ("beyond the seeds that the study asks for", beyond),
        )
        if those
    ]
    if untold:
        seeds = {int(run.tags["seed"]) for run in untold}
        lacking = lacking_starts({seed: policy for seed, policy in missing.items() if seed in seeds})
        lines.append(f"{_several(untold)} left out, {arms_and_seeds(untold)}: {lacking}.")
    return lines


def _several(runs: Sequence[TrackedRun]) -> str:
    return f"{len(runs)} run{'' if len(runs) == 1 else 's'}"


def _is_beyond(study: Study, run: TrackedRun) -> bool:
    """Whether no job of today could have made a run, whatever its configuration: the arm has fewer seeds."""
    arm = study.arms.get(run.tags["arm"])
    return arm is not None and int(run.tags["seed"]) >= arm.seeds


def notes_on_pairs(arms: Sequence[ArmResult], *, start_per_seed: bool) -> list[str]:
    """Over which seeds an arm is compared, where not over all of its own and all of the baseline's.

    Args:
        arms: that are compared, the baseline first.
        start_per_seed: see :func:`experiments.analysis.seeds.compared`.
    """
    baseline, *others = arms
    why = "each seed has a start of its own" if start_per_seed else "one of the two has no other"
    lines = []
    for arm in others:
        ours, theirs = compared(arm.seeds, baseline.seeds, start_per_seed=start_per_seed)
        if (len(ours), len(theirs)) != (len(arm.seeds), len(baseline.seeds)):
            named = f"seed{'' if len(ours) == 1 else 's'} {', '.join(ours)}, which both have"
            lines.append(f"Δ of {arm.name} is over {named if ours else 'no seed, as they share none'}: {why}.")
    return lines


def notes_on_costs(arms: Sequence[ArmResult]) -> list[str]:
    """Which arms are not at equal compute, and why."""
    untold = {arm.name for arm in arms if any(result.critic_seconds is None for result in arm.seeds.values())}
    lines = []
    for kind in ("tokens", "seconds"):
        uncounted = [arm.name for arm in arms if not arm.curves(f"over_{kind}")]
        if silent := [name for name in uncounted if kind == "tokens" or name not in untold]:
            lines.append(f"Not at equal {kind}, as not all their runs counted them: {', '.join(silent)}.")
    if untold:
        names = ", ".join(arm.name for arm in arms if arm.name in untold)
        lines.append(
            f"Not at equal seconds, as what training the critic took is not known "
            f"(from a checkpoint, or its stage did not count): {names}."
        )
    return lines


def notes_on_all_tokens(arms: Sequence[ArmResult]) -> list[str]:
    """What each arm generated in all, where that is not what the baseline did with the same seeds.

    The table compares equally many batches that teach the policy; those that only warm up a reward cost tokens too.
    """
    baseline, *others = arms
    told = []
    for arm in others:
        ours, theirs = map(_tokens, shared(arm.seeds, baseline.seeds))
        if ours and theirs and abs(share := ours / theirs - 1) >= TOLD:
            told.append(f"{arm.name} {share:+.0%}")
    beside = f"Tokens to the end, where success is read, beside those of {baseline.name} with the same seeds"
    return [f"{beside}, batches that teach the policy nothing among them: {', '.join(told)}."] if told else []


def _tokens(seeds: Mapping[str, SeedResult]) -> float | None:
    """The mean over these seeds; None where one did not count them, or there are none."""
    counted = [result.tokens for result in seeds.values() if result.tokens is not None]
    return fmean(counted) if seeds and len(counted) == len(seeds) else None


def arms_and_seeds(runs: Sequence[TrackedRun]) -> str:
    """``grpo 0, 1; oracle 0``"""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.tags["arm"], set()).add(int(run.tags["seed"]))
    return "; ".join(f"{arm} {', '.join(map(str, sorted(found)))}" for arm, found in seeds.items())


def notes_on_commits(arms: Sequence[ArmResult]) -> list[str]:
    """A sentence where the code was not the same throughout. VERSIONs decide what counts; an edit may escape them."""
    made: dict[str, list[TrackedRun]] = {}
    for result in (result for arm in arms for result in arm.seeds.values()):
        made.setdefault(", ".join(result.commits), []).append(result.run)
    if len(made) < 2:
        return []
    return [f"Made by different code: {'; '.join(f'[{sha}] {arms_and_seeds(those)}' for sha, those in made.items())}."]


def differing_test_beds(arms: Sequence[ArmResult], *, start_per_seed: bool) -> list[str]:
    """Parameters of the test bed that are not the same in all runs; a run's own seed is no part of it.

    ``threads`` among them, which change what a second holds, and the processor, as far as it is known.

    Args:
        arms: that are compared.
        start_per_seed: each seed begins from another policy, which has to be the same for the arms of that seed.
    """
    runs = [run for arm in arms for run in arm.runs]
    names = dict.fromkeys(name for run in runs for name in run.params if name.startswith(TEST_BED))
    fixed = [name for name in names if not name.endswith("seed")]
    differing = [name for name in fixed if not _alike(runs, name, by_seed=start_per_seed and is_begun_from(name))]
    results = [result for arm in arms for result in arm.seeds.values()]
    threads = {tuple(result.threads) for result in results}
    differing += [] if len(threads) <= 1 and all(len(each) <= 1 for each in threads) else ["threads"]
    return [*differing, *(["processor"] if len({name for one in results for name in one.processors}) > 1 else [])]


def _alike(runs: Sequence[TrackedRun], name: str, *, by_seed: bool) -> bool:
    """Whether the runs, or those of each seed, have one value of a parameter."""
    values = {(run.tags["seed"] if by_seed else "", value_of(run, name)) for run in runs}
    return len(values) == len({seed for seed, _ in values})
