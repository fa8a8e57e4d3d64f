"""The stages of an experiment, each with its parts of the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from omegaconf import DictConfig


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One stage. All but ``run`` are keys of the configuration."""

    run: str
    """The function of (configuration, own folder, folders of earlier stages, loggers), whose value joins the result."""
    result: tuple[str, ...]
    """What determines its result, besides ``seed``, ``budget.<stage>``, acting callbacks and the trainer's settings."""
    parts: tuple[str, ...]
    """The module, its data, and callbacks that take part in training; for ``evaluate`` the suite and the policy."""
    light: tuple[str, ...]
    """Parts that it builds without loading a model."""
    optimizer: str | None = None
    engine: str | None = None
    """The engine that draws its rollouts."""
    reads_policy: bool = True


STAGES: Mapping[str, Stage] = {
    "warm_start": Stage(
        run="experiments.stages.train.warm_start",
        result=("policy", "warm_start"),
        parts=("warm_start.module", "warm_start.datamodule"),
        light=("warm_start.datamodule",),
        optimizer="warm_start.module.optimizer",
    ),
    "critic": Stage(
        run="experiments.stages.train.critic",
        result=("task", "critic", "loss", "datamodule", "pretraining"),
        parts=("pretraining", "datamodule"),
        light=("datamodule", "loss"),
        optimizer="pretraining.optimizer",
        reads_policy=False,
    ),
    "grpo": Stage(
        run="experiments.stages.train.grpo",
        result=(
            *("policy", "prompts", "rollout", "online", "objective", "correction", "advantage", "reward"),
            *("optimizer", "module"),
        ),
        parts=("module", "prompts", "rollout", "online"),
        light=("objective", "correction", "advantage", "prompts", "rollout"),
        optimizer="optimizer",
        engine="rollout.engine",
    ),
    "evaluate": Stage(
        run="experiments.stages.evaluate.evaluate",
        result=("policy", "suite", "harness"),
        parts=("suite", "policy"),
        light=("suite", "harness"),
        engine="suite.engine",
    ),
}
"""All stages, in the order in which they run."""


def reads_policy(config: DictConfig) -> bool:
    """Whether one of the experiment's stages loads the policy."""
    return any(STAGES[stage].reads_policy for stage in config.stages)
