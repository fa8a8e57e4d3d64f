"""One experiment's own folder: what was asked, which stages it consists of, and, last, what came out."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.distributed import from_first, this_rank
from experiments.cli.overrides import typed_overrides
from experiments.stages.plan import StagePlan
from experiments.sweep.job import FOLDER, RUN, TYPED
from experiments.system.files import write_json, write_text, write_yaml
from experiments.tracking.environment import ENVIRONMENT, INSTALLED, environment, installed
from experiments.tracking.metrics_file import last_values
from experiments.tracking.origin import ORIGIN, as_json, origin_of
from experiments.tracking.run_tree import read_json

SWEEP = "CONTRASTIVE_REASONING_SWEEP"
"""The variable by which a job's process, and the ranks that it starts, know the sweep they belong to."""


def only_first(write: Callable[..., None]) -> Callable[..., None]:
    """Have a method do nothing on ranks other than 0."""

    @wraps(write)
    def on_first(*args: Any, **kwargs: Any) -> None:
        if this_rank() == 0:
            write(*args, **kwargs)

    return on_first


@dataclass(frozen=True, kw_only=True)
class RunRecord:
    """``outputs/runs/<experiment>/<time>-<seed>/``; ``experiments/tracking/run_tree.py`` reads what is written here.

    Of several ranks the first one writes.
    """

    folder: Path

    @only_first
    def add_stage(self, stages: Mapping[str, tuple[StagePlan, bool]]) -> None:
        """Write which folders the stages so far are in, and which of them were reused."""
        entries = {
            name: {"folder": str(plan.folder), "fingerprint": plan.fingerprint, "reused": reused}
            for name, (plan, reused) in stages.items()
        }
        write_json(self.folder / "stages.json", entries)

    @only_first
    def close(self, stages: Mapping[str, tuple[StagePlan, bool]], seconds: float) -> None:
        """Write the summary: the last value of every metric by stage."""
        metrics = {name: last_values(plan.folder) for name, (plan, _) in stages.items()}
        write_json(self.folder / "summary.json", {"seconds": round(seconds, 1), "metrics": metrics})


def open_record(config: DictConfig) -> RunRecord:
    """A new folder for this run, with its resolved configuration, the options chosen, what was typed, and its sweep."""
    folder = from_first(_described_folder(config) if this_rank() == 0 else None)
    assert folder is not None
    return RunRecord(folder=folder)


def _described_folder(config: DictConfig) -> Path:
    folder = _new_folder(Path(config.output_dir) / "runs" / config.name, config.seed)
    resolved: Any = OmegaConf.to_container(config, resolve=True)
    write_yaml(folder / "config.yaml", {**resolved, "git_sha": git_sha()})
    write_json(folder / ENVIRONMENT, environment())
    write_text(folder / INSTALLED, installed())
    if HydraConfig.initialized():
        hydra = HydraConfig.get()
        chosen = {group: option for group, option in hydra.runtime.choices.items() if option}
        ours = {group: option for group, option in chosen.items() if not group.startswith("hydra/")}
        write_json(folder / "choices.json", ours)
        write_json(folder / ORIGIN, as_json(origin_of(typed_overrides() or [], ours.get("experiment"))))
        if sweep := sweep_of(hydra):
            write_json(folder / "sweep.json", sweep)
    if job := os.environ.get(FOLDER):
        write_json(Path(job) / RUN, {"folder": str(folder)})
    return folder


def sweep_of(hydra: Any) -> dict[str, str] | None:
    """The sweep that this run is a job of, though it may run as a process of its own; None where it is none."""
    if hydra.mode == RunMode.MULTIRUN:
        folder = Path(hydra.sweep.dir)
        return {"sweep": folder.name, "overrides": _swept(hydra), "folder": str(folder)}
    return json.loads(os.environ[SWEEP]) if SWEEP in os.environ else None


def _swept(hydra: Any) -> str:
    """The part of the command line that all jobs of a sweep share."""
    return " ".join(hydra.overrides.task if hydra.job.num is None else _command_line(Path(hydra.sweep.dir)))


def _command_line(sweep: Path) -> list[str]:
    """The overrides as they were typed."""
    return read_json(sweep / TYPED)["overrides"]


def _new_folder(parent: Path, seed: int) -> Path:
    """``<time>-<seed>``; a second run within the same second waits for the next one."""
    while True:
        folder = parent / f"{time.strftime('%Y-%m-%dT%H-%M-%S')}-{seed}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            time.sleep(0.2)
        else:
            return folder


def git_sha() -> str:
    """The commit of the code, with ``-dirty`` where tracked files differ; empty outside a repository."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"]
    here = Path(__file__).resolve().parents[1]
    try:
        answer = subprocess.run(command, cwd=here, capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return re.sub(r"\s", "", answer.stdout)
