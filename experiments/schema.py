"""The typed root of the configuration, and the keys of those of its parts that have no ``_target_``.

A part with a ``_target_`` has the arguments of its constructor. Both are checked on the composed configuration by
``experiments/config/whole.py``, whoever wrote a key: the command line, an experiment, a YAML of one's own.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING

STAGES = ("warm_start", "critic", "grpo", "evaluate")
LEAST, ABOVE = "least", "above"
"""Bounds of a number, in the metadata of its field."""


def at_least(number: int) -> Any:
    return field(default=MISSING, metadata={LEAST: number})


def above(number: int) -> Any:
    return field(default=MISSING, metadata={ABOVE: number})


@dataclass
class FitBudget:
    """Size of a stage that is one Lightning fit; steps, in its own batches."""

    steps: int = at_least(0)
    warmup_steps: int = at_least(0)
    batch_size: int = at_least(1)
    evaluate_every: int = at_least(1)
    checkpoint_every: int = at_least(1)


@dataclass
class WarmStartBudget(FitBudget):
    learning_rate: float = above(0)
    unaimed_steps: int = at_least(0)
    """The first of the steps: of Countdown, plays without a target; of stories, sums."""


@dataclass
class CriticBudget(FitBudget):
    learning_rate: float = above(0)
    trajectories: int = at_least(1)
    """Searches that the published recipes draw from."""


@dataclass
class GRPOBudget:
    """Training by rollouts; a step is a rollout batch."""

    steps: int = at_least(0)
    problems: int = at_least(1)
    """Of a rollout batch, over all ranks."""
    group_size: int = at_least(1)
    updates: int = at_least(1)
    minibatches: int = at_least(1)
    learning_rate: float = above(0)
    microbatch_tokens: int = at_least(1)
    max_prompt_tokens: int | None = at_least(1)
    max_completion_tokens: int = at_least(1)
    evaluate_every: int = at_least(1)
    validation_problems: int = at_least(0)
    training_problems: int = at_least(0)
    """Training problems that are tried beside them."""
    checkpoint_every: int = at_least(1)


@dataclass
class CLIPOBudget:
    dimension: int = at_least(1)
    warmup_steps: int = at_least(0)
    draw_every: int = at_least(1)


@dataclass
class EvaluateBudget:
    """Problems of each set, and sampled completions of each problem."""

    problems: int = at_least(1)
    samples: int = at_least(0)


@dataclass
class Budget:
    warm_start: WarmStartBudget = MISSING
    critic: CriticBudget = MISSING
    grpo: GRPOBudget = MISSING
    clipo: CLIPOBudget = MISSING
    evaluate: EvaluateBudget = MISSING


@dataclass
class Best:
    """Stage → its validation metric that says which checkpoint is the best, with ``min`` or ``max``; null: none is."""

    warm_start: dict[str, Literal["min", "max"]] | None = MISSING
    critic: dict[str, Literal["min", "max"]] | None = MISSING
    grpo: dict[str, Literal["min", "max"]] | None = MISSING


@dataclass
class Checkpoints:
    keep: int = at_least(1)
    best: Best = MISSING
    resume_changed_code: bool = MISSING
    begin_anew: bool = MISSING


@dataclass
class Logger:
    mirror: bool = MISSING
    patience: float = at_least(0)
    """Seconds."""
    model_megabytes: float = at_least(0)


@dataclass
class Backbone:
    """The language model in a text critic."""

    pretrained: str = MISSING
    dtype: str = MISSING
    training: Any = MISSING
    """Which of its weights are trained."""
    learning_rate: float = above(0)
    """Of the text critic."""


@dataclass
class WarmStart:
    """The supervised stage; module and datamodule are null where there is nothing to teach."""

    train: bool | Literal["auto"] = "auto"
    """Whether it trains; auto: a fresh policy alone."""
    module: Any = MISSING
    datamodule: Any = MISSING


@dataclass
class Callbacks:
    """What watches all stages, and each; by a name of one's own each."""

    every: dict[str, Any] = MISSING
    warm_start: dict[str, Any] = MISSING
    critic: dict[str, Any] = MISSING
    grpo: dict[str, Any] = MISSING


PARTS: dict[str, type] = {
    "budget": Budget,
    "checkpoints": Checkpoints,
    "logger": Logger,
    "backbone": Backbone,
    "warm_start": WarmStart,
    "callbacks": Callbacks,
}
"""The parts that have no ``_target_``."""


@dataclass
class Root:
    """One experiment. The parts below ``output_dir`` are filled by the groups of the same name."""

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
    thought_ends: list[str] = MISSING
    """Tags after which a completion gives its answer."""
    baseline: str | None = None
    """The experiment that this one is compared with; a run ends by naming the command that does it."""
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
