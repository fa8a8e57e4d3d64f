"""The typed root of the configuration: these keys, of these types, and no others."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

STAGES = ("warm_start", "critic", "grpo", "evaluate")


@dataclass
class Root:
    """One experiment. The rooms below ``output_dir`` are filled by the groups of the same name."""

    name: str = MISSING
    """The experiment's name: its folder, and its MLflow experiment."""
    seed: int = MISSING
    """Every random draw is a function of this number, its purpose and its step."""
    scale: str = MISSING
    family: str = MISSING
    stages: list[str] = MISSING
    """A part of ``STAGES``, in that order."""
    output_dir: str = MISSING
    """Where stage and run folders go."""
    arm: str | None = None
    """The arm of a study that this run is; ``name`` is then the study's."""

    budget: Any = MISSING
    task: Any = MISSING
    policy: Any = MISSING
    warm_start: Any = MISSING
    backbone: Any = MISSING
    critic: Any = MISSING
    loss: Any = MISSING
    datamodule: Any = MISSING
    pretraining: Any = MISSING
    prompts: Any = MISSING
    rollout: Any = MISSING
    online: Any = MISSING
    objective: Any = MISSING
    correction: Any = MISSING
    advantage: Any = MISSING
    reward: Any = MISSING
    optimizer: Any = MISSING
    module: Any = MISSING
    suite: Any = MISSING
    trainer: Any = MISSING
    callbacks: Any = MISSING
    checkpoints: Any = MISSING
    logger: Any = MISSING
    progress: Any = MISSING


def register() -> None:
    """Make the schema known to Hydra under the name that config.yaml's defaults list uses."""
    ConfigStore.instance().store(name="schema", node=Root)
