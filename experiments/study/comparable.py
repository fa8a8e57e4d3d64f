"""Whether what an arm leaves can be compared, asked of its configuration: hours later it would be too late."""

from __future__ import annotations

from collections.abc import Sequence

from omegaconf import DictConfig, OmegaConf

from experiments.study.jobs import Job, composed
from experiments.study.plan import BEGUN_FROM, CURVES, EACH, METRICS, SETTING, Study, StudyError

COMPARED = ("grpo", "evaluate")


def check_comparable(study: Study, jobs: Sequence[Job]) -> None:
    """Look at the configuration of each arm once.

    Raises:
        StudyError: for the first that would leave nothing to compare.
    """
    for job in {job.arm: job for job in jobs}.values():
        if (sentence := lacking(study, composed(job))) is not None:
            raise StudyError(f"arm {job.arm}: {sentence}")


def lacking(study: Study, config: DictConfig) -> str | None:
    """What the report would miss, in one sentence."""
    for stage in COMPARED:
        if stage not in config.stages:
            return f"a study compares the stages {' and '.join(COMPARED)}, stages={list(config.stages)} lacks {stage}"
    return _lacking_start(study, config) or _lacking_test(study, config) or _lacking_curve(study, config)


def _lacking_start(study: Study, config: DictConfig) -> str | None:
    """Without a policy to begin from each arm would draw a warm start of its own for each seed, whose cost and luck
    nobody sees."""
    if study.start is not None or config.policy.pretrained is not None:
        return None
    return (
        f"{BEGUN_FROM} is null and so is {study.name}.start: give the study a start, from which all arms begin, "
        f"with seed: {EACH} where each seed should have its own; or name a policy"
    )


def _lacking_test(study: Study, config: DictConfig) -> str | None:
    settings = OmegaConf.select(config, "suite.settings") or {}
    if SETTING not in settings:
        there = ", ".join(map(str, settings)) or "none"
        return f"suite.settings must hold {SETTING!r}, on which a study compares; there are {there}"
    if study.primary.metric != METRICS[0] and not settings[SETTING].samples:
        return f"suite.settings.{SETTING}.samples is 0, but the primary metric is {study.primary.metric}"
    return None


def _lacking_curve(study: Study, config: DictConfig) -> str | None:
    if not config.budget.grpo.validation_problems:
        return f"budget.grpo.validation_problems is 0, but the curve is {study.curve}"
    samples = config.rollout.validation_samples
    drawn = [CURVES[0], *([CURVES[1], f"val/verifier/pass_at_{samples}"] if samples else [])]
    if study.curve not in drawn:
        return f"with rollout.validation_samples={samples} the curve may be {' or '.join(drawn)}, got {study.curve}"
    return None
