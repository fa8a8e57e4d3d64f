"""The jobs that a sweep will have, known before the first one where Hydra's own sweeper makes them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig

from experiments.sweep.job import Job

ITSELF = ("hydra", "sweep")
"""Overrides that say how to sweep, not what."""


def expected_jobs(config: DictConfig) -> list[Job]:
    """All jobs in their order; none where the sweeper finds the values as it goes (Optuna's)."""
    sweeper = config.hydra.sweeper
    if not str(sweeper._target_).endswith(f".{BasicSweeper.__name__}"):
        return []
    given = [f"{key}={value}" for key, value in (sweeper.params or {}).items()]
    loader = GlobalHydra.instance().config_loader()
    parsed = OverridesParser.create(config_loader=loader).parse_overrides([*given, *config.hydra.overrides.task])
    (jobs,) = BasicSweeper.split_arguments(parsed, None)
    return [Job(number=number, overrides=tuple(overrides)) for number, overrides in enumerate(jobs)]


def varying(jobs: Sequence[Job]) -> list[str]:
    """The keys whose value is not the same in all jobs, in the order of the command line."""
    keys = dict.fromkeys(key for job in jobs for key in job.values)
    return [key for key in keys if len({job.values.get(key) for job in jobs}) > 1]


def label(job: Job, keys: Sequence[str]) -> str:
    """``reward.temperature=0.2 seed=1``."""
    return " ".join(f"{key}={job.values[key]}" for key in keys if key in job.values)


def runs_here(launcher: Any) -> bool:
    """Whether the jobs are processes of this machine, not of a cluster."""
    return str(launcher._target_).endswith((".BasicLauncher", ".JoblibLauncher"))


def at_once(launcher: Any, jobs: int) -> int:
    """How many jobs share this machine: joblib's ``n_jobs``, where -1 is one for each core; else one."""
    if not str(launcher._target_).endswith(".JoblibLauncher"):
        return 1
    cores = os.cpu_count() or 1
    asked = launcher.n_jobs if launcher.n_jobs > 0 else cores + 1 + launcher.n_jobs
    return max(1, min(asked, jobs) if jobs else asked)
