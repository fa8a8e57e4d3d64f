"""Which jobs of a sweep have finished before: a run folder has the fingerprints that their stages would have today."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, open_dict

from experiments.run_folder import stage_folders
from experiments.sweep.job import Job


def mark_done(jobs: Sequence[Job], configs: Sequence[DictConfig]) -> list[Job]:
    """The jobs, those with a finished run as ``done already``.

    Args:
        jobs: all jobs of the sweep.
        configs: what each will be started with.
    """
    runs = {folder: finished_runs(folder) for folder in {run_parent(one) for one in configs}}
    if not any(runs.values()):
        return list(jobs)  # nothing to look for: the libraries need not be imported
    return [_marked(job, one, runs[run_parent(one)]) for job, one in zip(jobs, configs, strict=True)]


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


def run_parent(config: DictConfig) -> Path:
    return Path(config.output_dir) / "runs" / config.name


def finished_runs(parent: Path) -> dict[Path, Mapping[str, str]]:
    """Folder → {stage: fingerprint} of every run that has ended and whose stages are all there; the newest last."""
    return {
        summary.parent: {stage: str(entry["fingerprint"]) for stage, _, entry in stage_folders(summary.parent)}
        for summary in sorted(parent.glob("*/summary.json"))
        if all((stage / "result.json").is_file() for _, stage, _ in stage_folders(summary.parent))
    }


def _marked(job: Job, config: DictConfig, runs: Mapping[Path, Mapping[str, str]]) -> Job:
    ours = _fingerprints(config)
    same = [folder for folder, theirs in runs.items() if theirs == ours]
    return replace(job, state="done already", run=str(same[-1])) if ours and same else job


def _fingerprints(config: DictConfig) -> dict[str, str]:
    """Empty for what cannot be planned: the job's own process then says why."""
    from experiments.assemble import AssemblyError
    from experiments.stages.plan import plan_stages

    try:
        return {name: plan.fingerprint for name, plan in plan_stages(config).items()}
    except AssemblyError:
        return {}
