"""The jobs of a study: an arm with a seed each, in the order in which they say most when they are stopped early."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hydra import initialize_config_module
from omegaconf import DictConfig

from experiments.config.composition import composed as composed_lines
from experiments.config.override_checks import override_errors
from experiments.study.plan import START, Start, Study, StudyError


@dataclass(frozen=True, kw_only=True)
class Job:
    """One process: ``python -m experiments.run`` with these overrides."""

    arm: str
    seed: int
    overrides: tuple[str, ...]

    @property
    def label(self) -> str:
        return f"{self.arm} seed {self.seed}"

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-m", "experiments.run", *self.overrides]


def jobs_of(study: Study, policies: Mapping[int, str]) -> list[Job]:
    """Row by row of ``order``, in a row seed by seed, of a seed each arm.

    Args:
        study: which.
        policies: by seed the folder of the warm start it begins from; a seed that has none leaves
            ``policy.pretrained`` as it is.
    """
    begin = {seed: [f"policy.pretrained={policy}"] for seed, policy in policies.items()}
    return [
        Job(arm=arm, seed=seed, overrides=_overrides(study, arm, seed, study.arms[arm].overrides, begin.get(seed, [])))
        for row in study.order
        for seed in range(max((study.arms[arm].seeds for arm in row), default=0))
        for arm in row
        if seed < study.arms[arm].seeds
    ]


def start_jobs(study: Study) -> dict[int, Job]:
    """By seed of the arms, the warm start that they begin from; empty where they begin from a policy that there is.

    One job for all seeds, or one for each: see ``Start.seed``.
    """
    start = study.start
    if start is None:
        return {}
    most = max((arm.seeds for arm in study.arms.values()), default=0)
    return {seed: _start(study, start, seed if start.seed is None else start.seed) for seed in range(most)}


def _start(study: Study, start: Start, seed: int) -> Job:
    stage = ["stages=[warm_start]", "policy.pretrained=null"]
    return Job(arm=START, seed=seed, overrides=_overrides(study, START, seed, start.overrides, stage))


def _overrides(study: Study, arm: str, seed: int, own: Sequence[str], further: Sequence[str]) -> tuple[str, ...]:
    return (*study.common, *own, *further, f"seed={seed}", f"name={study.name}", f"arm={arm}")


def composed(job: Job) -> DictConfig:
    """The configuration of a job, for reading; composed once, for it takes half a second and several checks ask."""
    with initialize_config_module("conf", version_base="1.3"):
        return composed_lines(*job.overrides)


def check_jobs(jobs: Sequence[Job]) -> None:
    """Try the command line of each arm once.

    Raises:
        StudyError: for the first that is refused.
    """
    first = {job.arm: job for job in jobs}
    for arm, sentence in zip(first, override_errors(job.overrides for job in first.values()), strict=True):
        if sentence is not None:
            raise StudyError(f"arm {arm}: {sentence}")
