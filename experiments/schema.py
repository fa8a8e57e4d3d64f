"""The typed root of the configuration, and the keys of its parts without ``_target_``.

The keys of a part with a ``_target_`` are the arguments of its constructor. ``experiments/config/types.py`` checks both
on the composed configuration, so it covers the command line, experiments and the user's own YAML files.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from hydra import initialize_config_module
from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, OmegaConf

from conf import GLOBAL, VARIANTS

LEAST, ABOVE = "least", "above"
"""Keys of the bounds of a number in the metadata of its field."""


def at_least(number: int) -> Any:
    return field(default=MISSING, metadata={LEAST: number})


def above(number: int) -> Any:
    return field(default=MISSING, metadata={ABOVE: number})


@dataclass
class FitBudget:
    """Sizes of a stage that is one Lightning fit; a step is a batch of that stage."""

    steps: int = at_least(0)
    warmup_steps: int = at_least(0)
    batch_size: int = at_least(1)
    evaluate_every: int = at_least(1)
    checkpoint_every: int = at_least(1)
    log_every: int = at_least(1)
    """Steps between two records of the training metrics."""


@dataclass
class WarmStartBudget(FitBudget):
    learning_rate: float = above(0)
    unaimed_steps: int = at_least(0)
    """The first steps, which train on plays without a target (Countdown) or on sums alone (stories)."""


@dataclass
class CriticBudget(FitBudget):
    learning_rate: float = above(0)
    trajectories: int = at_least(1)
    """Searches from which the published recipes draw."""


@dataclass
class GRPOBudget:
    """Sizes of GRPO training; a step is a rollout batch."""

    steps: int = at_least(0)
    problems: int = at_least(1)
    """Problems per rollout batch, over all ranks."""
    group_size: int = at_least(2)
    updates: int = at_least(1)
    minibatches: int = at_least(1)
    learning_rate: float = above(0)
    microbatch_tokens: int = at_least(1)
    max_prompt_tokens: int | None = at_least(1)
    max_completion_tokens: int = at_least(1)
    evaluate_every: int = at_least(1)
    validation_problems: int = at_least(0)
    training_problems: int = at_least(0)
    """Training problems that are evaluated along with the validation problems."""
    checkpoint_every: int = at_least(1)
    log_every: int = at_least(1)


@dataclass
class CLIPOBudget:
    dimension: int = at_least(1)
    warmup_steps: int = at_least(0)
    draw_every: int = at_least(1)


@dataclass
class EvaluateBudget:
    """Problems per set, and sampled completions per problem."""

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
    """Stage → {validation metric: ``min`` or ``max``} that selects the best checkpoint; null: no selection."""

    warm_start: dict[str, Literal["min", "max"]] | None = MISSING
    critic: dict[str, Literal["min", "max"]] | None = MISSING
    grpo: dict[str, Literal["min", "max"]] | None = MISSING


@dataclass
class Checkpoints:
    keep: int = at_least(1)
    best: Best = MISSING
    resume_changed_code: bool = MISSING


@dataclass
class Logger:
    mirror: bool = MISSING
    patience: float = at_least(0)
    """Seconds to wait for MLflow at the end of a run."""
    model_megabytes: float = at_least(0)
    also: dict[str, Any] = MISSING
    """Lightning loggers beside the run folder, by freely chosen names."""
    run: str | None = MISSING
    stage: str | None = MISSING
    folder: str | None = MISSING
    id: str | None = MISSING


@dataclass
class Backbone:
    """The language model in a text critic."""

    pretrained: str = MISSING
    dtype: str = MISSING
    training: Any = MISSING
    """How its weights are trained: all, adapters or none."""
    learning_rate: float = above(0)
    """Learning rate of the text critic."""


@dataclass
class WarmStart:
    """The supervised stage; module and datamodule are null for a task without a supervised corpus."""

    train: bool | Literal["auto"] = "auto"
    """Whether the stage trains; auto: only if the policy is new, without pretrained weights."""
    module: Any = MISSING
    datamodule: Any = MISSING


@dataclass
class Callbacks:
    """Callbacks of all stages (``every``) and of each stage, by freely chosen names."""

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
"""The parts without ``_target_``."""


@dataclass
class Root:
    """One experiment. The untyped parts are filled by the config groups of the same name."""

    name: str = MISSING
    """Name of the experiment, of its folder and of its MLflow experiment."""
    seed: int = MISSING
    """Every random draw is a function of the seed, its purpose and its step."""
    scale: str = MISSING
    family: str = MISSING
    stages: list[str] = MISSING
    """A subset of ``config.stages.STAGES``, in that order."""
    output_dir: str = MISSING
    """Parent of stage and run folders."""
    keep_freed_memory: bool = MISSING
    """Whether the process keeps memory that it frees."""
    thought_ends: list[str] = MISSING
    """Tags that end a model's thoughts; the answer follows them."""
    baseline: str | None = None
    """The experiment to compare this one with. A run prints the command for that at its end."""
    arm: str | None = None
    """The arm of a study that this run belongs to; ``name`` is then the name of the study."""

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
    harness: Any = None
    """Another evaluation harness, which evaluates the same policies as the suite."""
    trainer: Any = MISSING
    callbacks: Any = MISSING
    checkpoints: Any = MISSING
    logger: Any = MISSING
    progress: Any = MISSING


@cache
def register() -> None:
    """Registers with Hydra the schema, the options that are rows of a table, and the resolvers."""
    store = ConfigStore.instance()
    store.store(name="schema", node=Root)
    for group, variants in VARIANTS.items():
        package = "_global_" if group.startswith(GLOBAL) else None
        for name, variant in variants.items():
            store.store(group=group, name=name, package=package, node=variant.node())
    OmegaConf.register_new_resolver("merge", OmegaConf.merge, replace=True)
    OmegaConf.register_new_resolver("equal", lambda one, other: one == other, replace=True)
    # Hydra makes the folder of a sweep before any of our code runs
    OmegaConf.register_new_resolver("expanduser", os.path.expanduser, replace=True)


@contextmanager
def composing() -> Iterator[None]:
    """The context in which Hydra composes the configurations of ``conf/``."""
    register()
    with initialize_config_module("conf", version_base="1.3"):
        yield
