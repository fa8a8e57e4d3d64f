"""Writes a run's own files: configuration and origin, machine and packages, stages, and finally summary or failure.

Only rank 0 writes, except for a failure. Environment variables and the addresses from which packages were installed are
not written, because they may contain secrets.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, distributions, version
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.distributed import from_first, this_rank
from experiments.run_folder.reader import (
    ENVIRONMENT,
    FAILURE,
    INSTALLED,
    JOB_RUN,
    JOB_VARIABLE,
    ORIGIN,
    STAGES,
    SUMMARY,
    SWEEP_COMMAND,
    SWEEP_FILE,
    SWEEP_VARIABLE,
    Origin,
    last_values,
    read_json,
    stage_folders,
)
from experiments.system.files import write_json, write_text, write_yaml
from experiments.system.terminal import first_line

PACKAGES = ("torch", "lightning", "transformers", "peft", "hydra-core", "mlflow", "numpy")
PROJECT = "contrastive-reasoning"


def new_run_folder(config: DictConfig, *, overrides: Sequence[str], about: Mapping[str, str]) -> Path:
    """Creates ``outputs/runs/<experiment>/<time>-<seed>/`` with the configuration, its origin and the environment.

    ``about``: experiment → the first line of its file.
    """
    folder = from_first(_new_run(config, overrides, about) if this_rank() == 0 else None)
    assert folder is not None
    return folder


def _new_run(config: DictConfig, overrides: Sequence[str], about: Mapping[str, str]) -> Path:
    folder = _new_folder(Path(config.output_dir) / "runs" / config.name, config.seed)
    resolved: Any = OmegaConf.to_container(config, resolve=True)
    write_yaml(folder / "config.yaml", {**resolved, "git_sha": git_sha()})
    write_json(folder / ENVIRONMENT, environment())
    write_text(folder / INSTALLED, installed_packages())
    if HydraConfig.initialized():
        hydra = HydraConfig.get()
        choices = {
            group: option
            for group, option in hydra.runtime.choices.items()
            if option and not group.startswith("hydra/")
        }
        write_json(folder / "choices.json", choices)
        packages = dict[str, str]()
        for name in PACKAGES:
            with suppress(PackageNotFoundError):
                packages[name] = version(name)
        origin = Origin(
            about=about.get(choices.get("experiment", ""), ""),
            overrides=list(overrides),
            python=platform.python_version(),
            packages=packages,
            id=uuid.uuid4().hex[:8],
        )
        write_json(folder / ORIGIN, asdict(origin))
        if sweep := sweep_of(hydra):
            write_json(folder / SWEEP_FILE, sweep)
    if job := os.environ.get(JOB_VARIABLE):
        write_json(Path(job) / JOB_RUN, {"folder": str(folder)})
    return folder


def _new_folder(parent: Path, seed: int) -> Path:
    """Creates the folder ``<time>-<seed>``; a second run within the same second waits for the next second."""
    while True:
        folder = parent / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{seed}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            time.sleep(0.2)
        else:
            return folder


def sweep_of(hydra: Any) -> dict[str, str] | None:
    """Returns the sweep that this run is a job of, even if the job is a separate process; None if there is none."""
    if hydra.mode != RunMode.MULTIRUN:
        return json.loads(os.environ[SWEEP_VARIABLE]) if SWEEP_VARIABLE in os.environ else None
    folder = Path(hydra.sweep.dir)
    # a job's own overrides have one value of each list; those of the command line have all
    shared = hydra.overrides.task if hydra.job.num is None else read_json(folder / SWEEP_COMMAND)["overrides"]
    return {"sweep": folder.name, "overrides": " ".join(shared), "folder": str(folder)}


def write_stages(folder: Path, stages: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes the stages so far, in order of execution: folder, fingerprint, and whether the stage was reused."""
    if this_rank() == 0:
        write_json(folder / STAGES, stages)


def write_summary(folder: Path, *, seconds: float) -> None:
    """Writes the last value of every metric by stage, which marks the run as finished."""
    if this_rank() == 0:
        metrics = {stage: last_values(place) for stage, place, _ in stage_folders(folder)}
        write_json(folder / SUMMARY, {"seconds": round(seconds, 1), "metrics": metrics})


def write_failure(folder: Path, error: Exception) -> None:
    """Writes the cause of a failure, from the first rank that fails. After a kill nothing is written."""
    if (folder / FAILURE).exists():
        return
    failure = {"cause": f"{type(error).__name__}: {first_line(error)}", "ended": time.time()}
    with suppress(OSError):  # the run may have failed because the disk is full
        write_json(folder / FAILURE, failure)


def git_sha() -> str:
    """Returns the commit of the code, with ``-dirty`` if tracked files differ; empty outside a repository."""
    # --exclude=*: otherwise a tag would take the place of the commit
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    try:
        return subprocess.run(command, cwd=Path(__file__).parent, capture_output=True, text=True).stdout.strip()
    except OSError:
        return ""


def environment() -> dict[str, Any]:
    return {
        "system": platform.platform(),
        "python": f"{platform.python_implementation()} {platform.python_version()}",
        "processors": os.cpu_count(),
        "memory_megabytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 10**6,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "accelerators": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
    }


def processor() -> str:
    """Returns the processor's name as reported by the system; on another processor the last digits may differ."""
    known = Path("/proc/cpuinfo")
    lines = known.read_text(encoding="utf-8").splitlines() if known.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return next(iter(names), "") or platform.processor() or platform.machine()


def installed_packages() -> str:
    """Returns a lock file for ``pip install -r``: one package per line, without this project.

    A local build is in a comment, because no index has it: ``torch==2.13.0  # 2.13.0+cpu``.
    """
    every = (one.metadata for one in distributions())  # each access parses the file again
    found = {one["Name"]: one["Version"] for one in every if one["Name"]}
    found.pop(PROJECT, None)
    lines = []
    for name in sorted(found, key=str.lower):
        public, plus, _ = found[name].partition("+")
        lines.append(f"{name}=={public}" + (f"  # {found[name]}" if plus else "") + "\n")
    return "".join(lines)
