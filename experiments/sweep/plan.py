"""The jobs of a sweep before the first one runs: which there will be, and which have finished before."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, ListConfig, open_dict

from experiments.jobs.job import Job
from experiments.run_folder import stage_folders
from experiments.run_folder.reader import RESULT, SUMMARY

DIRECTION, BETTER = "hydra.sweeper.direction", "maximize"


def wrong_direction(sweeper: Any) -> str | None:
    """What is wrong with where the sweeper will look; None where it looks for more, or has no such key.

    Jobs return success, and Optuna's own default is to look for less of it.

    Args:
        sweeper: its configuration, with ``direction`` as Optuna's has it: a word, a member of an enumeration, or a
            list of them.
    """
    if "direction" not in sweeper:
        return None
    given = sweeper.direction
    names = [str(getattr(one, "name", one)) for one in (given if isinstance(given, ListConfig) else [given])]
    if names == [BETTER]:
        return None
    shown = names[0] if len(names) == 1 else f"[{','.join(names)}]"
    return f"{DIRECTION}={shown}: jobs return one number, of which more is better (success): say {DIRECTION}={BETTER}"


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


def runs_here(launcher: Any) -> bool:
    """Whether the jobs are processes of this machine, not of a cluster."""
    return str(launcher._target_).endswith((".BasicLauncher", ".JoblibLauncher"))


def at_once(launcher: Any, jobs: int) -> int:
    """How many jobs share this machine: joblib's ``n_jobs``, where -1 is one for each core; else one."""
    if not str(launcher._target_).endswith(".JoblibLauncher"):
        return 1
    cores = os.cpu_count() or 1
    wanted = launcher.n_jobs if launcher.n_jobs > 0 else cores + 1 + launcher.n_jobs
    return max(1, min(wanted, jobs) if jobs else wanted)


def job_config(job: Job, config: DictConfig) -> DictConfig:
    """What a job of the sweep will be started with, composed as Hydra's launchers do.

    Args:
        job: which.
        config: of the sweep, Hydra's own part with it.
    """
    composed = GlobalHydra.instance().config_loader().load_sweep_config(config, list(job.overrides))
    with open_dict(composed):
        del composed["hydra"]
    return composed


def mark_done(jobs: Sequence[Job], configs: Sequence[DictConfig]) -> list[Job]:
    """The jobs, ``done already`` those with a finished run of the fingerprints that their stages would have today.

    Args:
        jobs: all jobs of the sweep.
        configs: what each will be started with.
    """
    parents = [Path(config.output_dir) / "runs" / config.name for config in configs]
    runs = {parent: finished_runs(parent) for parent in set(parents)}
    if not any(runs.values()):
        return list(jobs)  # nothing to look for: the libraries need not be imported
    marked = []
    for job, config, parent in zip(jobs, configs, parents, strict=True):
        ours = _fingerprints(config)
        same = [folder for folder, theirs in runs[parent].items() if ours and theirs == ours]
        marked.append(replace(job, state="done already", run=str(same[-1])) if same else job)
    return marked


def finished_runs(parent: Path) -> dict[Path, Mapping[str, str]]:
    """Folder → {stage: fingerprint} of every run that has ended and whose stages are all there; the newest last."""
    return {
        summary.parent: {stage: str(entry["fingerprint"]) for stage, _, entry in stage_folders(summary.parent)}
        for summary in sorted(parent.glob(f"*/{SUMMARY}"))
        if all((stage / RESULT).is_file() for _, stage, _ in stage_folders(summary.parent))
    }


def _fingerprints(config: DictConfig) -> dict[str, str]:
    """Empty for what cannot be planned: the job's own process then says why."""
    from experiments.assemble import AssemblyError
    from experiments.stages.plan import plan_stages

    try:
        return {name: plan.fingerprint for name, plan in plan_stages(config).items()}
    except AssemblyError:
        return {}
