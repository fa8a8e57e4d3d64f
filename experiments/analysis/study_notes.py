"""What a reader of a study's table should know beside it: what is missing, what was left out, what was not alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean

from experiments.analysis.comparison import first_few, notes_on_arms
from experiments.analysis.runs import arms_by, names_the_start, value_of
from experiments.analysis.statistics import seeds_to_compare, shared_seeds
from experiments.analysis.study_results import ArmResult, SeedResult
from experiments.mlflow_sync import TrackedRun
from experiments.studies.finished import lacking_starts
from experiments.studies.plan import Study

TEST_BED = (
    *("task.", "policy.", "suite.", "budget.evaluate.", "budget.grpo.steps", "budget.grpo.max_completion_tokens"),
    *("budget.grpo.validation_problems", "rollout.validation_samples"),
)
"""Beginnings of the parameters of the test, and of what the curves are of."""
LEAST_SHARE = 0.01
"""From this share on an arm's tokens are another number than the baseline's."""


def notes_on(
    study: Study, arms: Sequence[ArmResult], left_out: Sequence[TrackedRun], missing: Mapping[int, str]
) -> list[str]:
    """All of them.

    Args:
        study: whose arms and seeds were planned.
        arms: that are compared, the baseline first.
        left_out: finished runs that are not.
        missing: see :class:`experiments.studies.finished.Today`.
    """
    done = {arm.name: len(arm.seeds) for arm in arms}
    planned = {name: arm.seeds for name, arm in study.arms.items()}
    lacking = [f"{name} {done.get(name, 0)} of {most}" for name, most in planned.items() if done.get(name, 0) < most]
    counted = arms_by([run for arm in arms for run in arm.runs], ["arm"])
    differing = differing_test_beds(arms, start_per_seed=study.start_per_seed)
    return [
        *([f"Seeds so far: {', '.join(lacking)}."] if lacking else []),
        *_notes_on_pairs(arms, start_per_seed=study.start_per_seed),
        *notes_on_left_out(study, left_out, missing),
        *_notes_on_commits(arms),
        *notes_on_arms(counted, starts_may_differ=study.start_per_seed),
        *_notes_on_costs(arms),
        *_notes_on_all_tokens(arms),
        *([f"The arms were not tested alike: {first_few(differing)} differ."] if differing else []),
    ]


def notes_on_left_out(study: Study, runs: Sequence[TrackedRun], missing: Mapping[int, str]) -> list[str]:
    """Which finished runs are in no table, and why; ``missing``: see :class:`experiments.studies.finished.Today`."""
    beyond, unknown, others = list[TrackedRun](), list[TrackedRun](), list[TrackedRun]()
    for run in runs:
        arm, seed = study.arms.get(run.tags["arm"]), int(run.tags["seed"])
        is_beyond = arm is not None and seed >= arm.seeds
        (beyond if is_beyond else unknown if seed in missing else others).append(run)
    lines = [
        f"{_several(those)} {why} left out: {arms_and_seeds(those)}."
        for why, those in (
            ("of another configuration", others),
            ("beyond the seeds that the study asks for", beyond),
        )
        if those
    ]
    if unknown:
        seeds = {int(run.tags["seed"]) for run in unknown}
        lacking = lacking_starts({seed: policy for seed, policy in missing.items() if seed in seeds})
        lines.append(f"{_several(unknown)} left out, {arms_and_seeds(unknown)}: {lacking}.")
    return lines


def _several(runs: Sequence[TrackedRun]) -> str:
    return f"{len(runs)} run{'' if len(runs) == 1 else 's'}"


def arms_and_seeds(runs: Sequence[TrackedRun]) -> str:
    """``grpo 0, 1; oracle 0``"""
    seeds: dict[str, set[int]] = {}
    for run in runs:
        seeds.setdefault(run.tags["arm"], set()).add(int(run.tags["seed"]))
    return "; ".join(f"{arm} {', '.join(map(str, sorted(found)))}" for arm, found in seeds.items())


def _notes_on_pairs(arms: Sequence[ArmResult], *, start_per_seed: bool) -> list[str]:
    """Over which seeds an arm is compared, where not over all of its own and all of the baseline's."""
    baseline, *others = arms
    why = "each seed has a start of its own" if start_per_seed else "one of the two has no other"
    lines = []
    for arm in others:
        ours, theirs = seeds_to_compare(arm.seeds, baseline.seeds, start_per_seed=start_per_seed)
        if (len(ours), len(theirs)) != (len(arm.seeds), len(baseline.seeds)):
            named = f"seed{'' if len(ours) == 1 else 's'} {', '.join(ours)}, which both have"
            lines.append(f"Δ of {arm.name} is over {named if ours else 'no seed, as they share none'}: {why}.")
    return lines


def _notes_on_costs(arms: Sequence[ArmResult]) -> list[str]:
    """Which arms are not compared at equal cost, and why."""
    unknown = [arm.name for arm in arms if any(result.critic_seconds is None for result in arm.seeds.values())]
    lines = []
    for cost in ("tokens", "seconds"):
        uncounted = [arm.name for arm in arms if not arm.curves(cost)]
        if silent := [name for name in uncounted if cost == "tokens" or name not in unknown]:
            lines.append(f"Not at equal {cost}, as not all their runs counted them: {', '.join(silent)}.")
    if unknown:
        lines.append(
            f"Not at equal seconds, as what training the critic took is not known "
            f"(from a checkpoint, or its stage did not count): {', '.join(unknown)}."
        )
    return lines


def _notes_on_all_tokens(arms: Sequence[ArmResult]) -> list[str]:
    """What each arm generated in all, where that is not what the baseline did with the same seeds.

    The table compares equally many batches that teach the policy; those that only warm up a reward cost tokens too.
    """
    baseline, *others = arms
    shares = []
    for arm in others:
        ours, theirs = map(_mean_tokens, shared_seeds(arm.seeds, baseline.seeds))
        if ours and theirs and abs(share := ours / theirs - 1) >= LEAST_SHARE:
            shares.append(f"{arm.name} {share:+.0%}")
    beside = f"Tokens to the end, where success is read, beside those of {baseline.name} with the same seeds"
    return [f"{beside}, batches that teach the policy nothing among them: {', '.join(shares)}."] if shares else []


def _mean_tokens(seeds: Mapping[str, SeedResult]) -> float | None:
    """The mean over these seeds; None where one did not count them, or there are none."""
    counted = [result.tokens for result in seeds.values() if result.tokens is not None]
    return fmean(counted) if seeds and len(counted) == len(seeds) else None


def _notes_on_commits(arms: Sequence[ArmResult]) -> list[str]:
    """Where the code was not the same throughout: fingerprints decide what counts, an edit may not change them."""
    made: dict[str, list[TrackedRun]] = {}
    for result in (result for arm in arms for result in arm.seeds.values()):
        made.setdefault(", ".join(result.commits), []).append(result.run)
    listed = "; ".join(f"[{commits}] {arms_and_seeds(runs)}" for commits, runs in made.items())
    return [f"Made by different code: {listed}."] if len(made) > 1 else []


def differing_test_beds(arms: Sequence[ArmResult], *, start_per_seed: bool) -> list[str]:
    """Parameters of the test bed that are not the same in all runs; a run's own seed is no part of it.

    ``threads`` among them, which change how much a second computes, and the processor, as far as it is known.

    Args:
        arms: that are compared.
        start_per_seed: each seed begins from another policy, which has to be the same for the arms of that seed.
    """
    runs = [run for arm in arms for run in arm.runs]
    names = dict.fromkeys(name for run in runs for name in run.params if name.startswith(TEST_BED))
    differing = []
    for name in names:
        by_seed = start_per_seed and names_the_start(name)
        values = {(run.tags["seed"] if by_seed else "", value_of(run, name)) for run in runs}
        if not name.endswith("seed") and len(values) > len({seed for seed, _ in values}):
            differing.append(name)
    results = [result for arm in arms for result in arm.seeds.values()]
    threads = {tuple(result.threads) for result in results}
    differing += [] if len(threads) <= 1 and all(len(each) <= 1 for each in threads) else ["threads"]
    return [*differing, *(["processor"] if len({name for one in results for name in one.processors}) > 1 else [])]
