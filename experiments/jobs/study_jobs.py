"""The jobs of a study, each an arm with a seed. Their order makes a study that is stopped early most informative.

Before the first job runs, the configurations are checked for comparability.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from omegaconf import DictConfig, OmegaConf

from experiments.config.composition import compose_lines
from experiments.config.override_checks import override_errors
from experiments.jobs.study_plan import BEGUN_FROM, CURVES, EACH, METRICS, RIGHT_PLAN, SETTING, START, Study, StudyError
from experiments.schema import composing

COMPARED = ("grpo", "evaluate")


@dataclass(frozen=True, kw_only=True)
class ArmJob:
    """An arm with a seed."""

    arm: str
    seed: int
    overrides: tuple[str, ...]  # not a list: the cache of plans needs a hashable job

    @property
    def label(self) -> str:
        return f"{self.arm} seed {self.seed}"


def jobs_of(study: Study, policies: Mapping[int, str]) -> list[ArmJob]:
    """Returns the jobs by row of ``order``, then by seed, then by arm.

    ``policies``: seed → path of its warm-start policy; without one, ``policy.pretrained`` is not set.
    """
    begin = {seed: [f"{BEGUN_FROM}={policy}"] for seed, policy in policies.items()}
    return [
        _job(study, arm, seed, [*study.arms[arm].overrides, *begin.get(seed, [])])
        for row in study.order
        for seed in sorted({seed for arm in row for seed in study.seeds(arm)})
        for arm in row
        if seed in study.seeds(arm)
    ]


def start_jobs(study: Study) -> dict[int, ArmJob]:
    """Returns seed → job of the warm start for that seed, which may be the same job for all seeds.

    Empty if the study has no ``start``.
    """
    if (start := study.start) is None:
        return {}
    overrides = [*start.overrides, "stages=[warm_start]", f"{BEGUN_FROM}=null"]
    seeds = sorted({seed for arm in study.arms for seed in study.seeds(arm)})
    return {seed: _job(study, START, seed if start.seed == EACH else int(start.seed), overrides) for seed in seeds}


def _job(study: Study, arm: str, seed: int, overrides: Sequence[str]) -> ArmJob:
    own = (f"seed={seed}", f"name={study.name}", f"arm={arm}")
    return ArmJob(arm=arm, seed=seed, overrides=(*study.common, *overrides, *own))


def compose_job(job: ArmJob) -> DictConfig:
    """Composes the configuration of a job, for reading only."""
    with composing():
        return compose_lines(*job.overrides)


def check(study: Study, only: Sequence[str] = ()) -> None:
    """Checks the overrides of each arm in ``only`` (empty: all) and of the start once.

    Only these, since the critic of another arm may be missing.

    Raises:
        StudyError: for the first arm whose overrides are invalid or whose results could not be compared.
    """
    jobs = [job for job in jobs_of(study, {}) if not only or job.arm in only]
    first = {job.arm: job for job in [*start_jobs(study).values(), *jobs]}
    sentences = override_errors((job.overrides for job in first.values()), loads=True)
    for arm, sentence in zip(first, sentences, strict=True):
        if sentence is not None:
            raise StudyError(f"arm {arm}: {sentence}")
    for arm in study.arms:
        if arm in first and (sentence := next(_lacking(study, compose_job(first[arm])), None)) is not None:
            raise StudyError(f"arm {arm}: {sentence}")


def _lacking(study: Study, config: DictConfig) -> Iterator[str]:
    """Yields a sentence for each requirement of the report that the configuration does not meet."""
    for stage in COMPARED:
        if stage not in config.stages:
            yield f"a study compares the stages {' and '.join(COMPARED)}, stages={list(config.stages)} lacks {stage}"
    if study.start is None and config.policy.pretrained is None:
        # each arm would train its own warm start per seed, which would add hidden cost and variance
        yield (
            f"{BEGUN_FROM} is null and so is {study.name}.start: give the study a start, from which all arms begin, "
            f"with seed: {EACH} where each seed should have its own; or name a policy"
        )
    settings = OmegaConf.select(config, "suite.settings") or {}
    if SETTING not in settings:
        there = ", ".join(map(str, settings)) or "none"
        yield f"suite.settings must hold {SETTING!r}, on which a study compares; there are {there}"
    elif study.primary.metric != METRICS[0] and not settings[SETTING].samples:
        yield f"suite.settings.{SETTING}.samples is 0, but the primary metric is {study.primary.metric}"
    if not config.budget.grpo.validation_problems:
        yield f"budget.grpo.validation_problems is 0, but the curve is {study.curve}"
    samples = config.rollout.validation_samples
    drawn = [CURVES[0], *([CURVES[1], f"val/verifier/pass_at_{samples}"] if samples else [])]
    if str(config.task.get("_target_")).endswith(".ArithmeticTask"):
        drawn.append(RIGHT_PLAN)
    if study.curve not in drawn:
        yield f"with rollout.validation_samples={samples} the curve may be {' or '.join(drawn)}, got {study.curve}"
