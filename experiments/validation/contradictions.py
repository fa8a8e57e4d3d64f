"""Contradictions that the configuration alone shows, before anything is imported or loaded."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

from omegaconf import DictConfig, ListConfig, Node, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.cli.catalogue import catalogued
from experiments.cli.suggestions import did_you_mean
from experiments.embed import EMBEDDED, ROOM
from experiments.schema import STAGES
from experiments.system.folder_names import flaw, shown
from experiments.system.launch import launched, world_size
from experiments.system.secret_values import secret_finder
from experiments.validation.critics import no_critic, other_critic
from experiments.validation.enumerated import unknown_word

SECRET = "holds the environment's"
READ_THERE = "a configuration is written into every run folder; what needs it reads it from the environment itself"
REFERENCE = re.compile(r"\$\{[\w.]+\}")
RATES = ("learning_rate",)
MAY_BE_NULL = ("max_prompt_tokens",)
MAY_BE_NOTHING = ("warmup_steps", "unaimed_steps", "samples", "validation_problems")


def contradiction(config: DictConfig) -> str | None:
    """The first thing that cannot work, in one sentence; None where nothing is known to be wrong."""
    checks: tuple[Callable[[DictConfig], str | None], ...] = (
        no_experiment,
        no_folder_name,
        a_secret,
        unknown_stage,
        unknown_word,
        small_size,
        small_group,
        no_critic,
        other_critic,
        no_policy,
        no_reference,
        several_devices,
    )
    return next((sentence for check in checks if (sentence := check(config)) is not None), None)


def no_experiment(config: DictConfig) -> str | None:
    if not OmegaConf.is_missing(config, "name"):
        return None
    return f"choose an experiment: experiment=NAME; there are {', '.join(catalogued())}"


def no_folder_name(config: DictConfig) -> str | None:
    """A name becomes a folder of the outputs and of the tracker, an arm the name of a log."""
    for key in ("name", "arm"):
        if config[key] is not None and (wrong := flaw(config[key])):
            return f"{key}={shown(config[key])} {wrong}"
    return "output_dir holds a NUL, which no path may" if "\x00" in config.output_dir else None


def a_secret(config: DictConfig) -> str | None:
    """What stands in the configuration is written into every run folder and sent to the tracker."""
    secret_in = secret_finder()
    for key, value in leaves(config):
        if isinstance(value, str) and (name := secret_in(value)) is not None:
            return f"{key} {SECRET} {name}: {READ_THERE}"
    return None


def leaves(config: DictConfig | ListConfig, above: str = "") -> Iterator[tuple[str, object]]:
    """Every value by its dotted path: as it is written, and as it is resolved where that can be done.

    A mere reference to another value is not followed: the other is there by its own path.
    """
    keys: Any = range(len(config)) if isinstance(config, ListConfig) else config.keys()
    for key in keys:
        path, node = f"{above}{key}", config._get_node(key)
        if isinstance(node, DictConfig | ListConfig) and not node._is_none() and not node._is_interpolation():
            yield from leaves(node, f"{path}.")
        elif isinstance(node, Node):
            yield path, node._value()
            if node._is_interpolation() and not REFERENCE.fullmatch(str(node._value())):
                with suppress(OmegaConfBaseException):
                    yield path, config[key]


def unknown_stage(config: DictConfig) -> str | None:
    stages = list(config.stages)
    for stage in stages:
        if stage not in STAGES:
            return f"stages: no stage {stage!r}; {did_you_mean(str(stage), STAGES)}"
    if not stages or stages != sorted(set(stages), key=STAGES.index):
        return f"stages must be some of [{', '.join(STAGES)}], in this order, each once; got {stages}"
    return None


def small_size(config: DictConfig) -> str | None:
    """A size of a stage that will run must be positive; a warm-up or a first phase may have no steps."""
    for stage in config.stages:
        sizes = config.budget[stage] or {}
        for key, value in sizes.items():
            least = 0 if key in MAY_BE_NOTHING or sizes.get("steps") == 0 else 1
            if value is None and key in MAY_BE_NULL:
                continue
            if key in RATES:
                if not isinstance(value, int | float) or value <= 0:
                    return f"budget.{stage}.{key} must be a positive number, got {value}"
            elif not isinstance(value, int) or value < least:
                return f"budget.{stage}.{key} must be a whole number of at least {least}, got {value}"
        if not sizes:
            return f"budget.{stage} must hold the sizes of its stage, got {config.budget[stage]}"
    return None


def small_group(config: DictConfig) -> str | None:
    size = config.rollout.group_size
    if "grpo" in config.stages and (not isinstance(size, int) or size < 2):
        return f"rollout.group_size must be a whole number of at least 2 (advantages compare a group), got {size}"
    return None


def no_policy(config: DictConfig) -> str | None:
    """A policy that comes with the package is one of a few."""
    name = config.policy.get("pretrained")
    ours = [f"{EMBEDDED}{found.parent.name}" for found in ROOM.glob("*/config.json")]
    if not str(name).startswith(EMBEDDED) or name in ours:
        return None
    return f"policy.pretrained={name}: no such policy comes with the package; {did_you_mean(name, ours)}"


def no_reference(config: DictConfig) -> str | None:
    """An objective that compares whole distributions with a reference has nothing to estimate from without one."""
    kl = config.objective.get("kl") or {}
    if "grpo" not in config.stages or not str(kl.get("_target_")).endswith(".FullKL") or config.module.reference:
        return None
    return "the objective compares with a reference over the whole vocabulary: choose module=grpo_reference"


def several_devices(config: DictConfig) -> str | None:
    """Counts of devices must be numbers, those of the ranks that were started, and share a rollout batch out evenly."""
    devices, nodes = config.trainer.get("devices", 1), config.trainer.get("num_nodes", 1)
    count = device_count(config.trainer)
    if count is None:
        return f"trainer.devices must be how many (CUDA_VISIBLE_DEVICES says which), got {devices}"
    if not isinstance(nodes, int) or nodes < 1:
        return f"trainer.num_nodes must be a whole number of at least 1, got {nodes}"
    ranks = count * nodes
    if launched() and world_size() != ranks:
        asked = f"trainer.devices={devices} and trainer.num_nodes={nodes} are {ranks}"
        return f"{world_size()} ranks were started, but {asked}"
    if nodes > 1 and not launched():
        return f"trainer.num_nodes={nodes}: start the run by torchrun on every node, see docs/scaling.md"
    if "grpo" not in config.stages:
        return None
    return uneven_ranks(config, ranks) or lonely_draws(config, ranks)


def uneven_ranks(config: DictConfig, ranks: int) -> str | None:
    problems, minibatches = config.budget.grpo.problems, config.budget.grpo.minibatches
    if problems % (ranks * minibatches) == 0:
        return None
    return (
        f"budget.grpo.problems={problems} cannot be shared out evenly over ranks ({ranks}) × mini-batches "
        f"({minibatches}): take a multiple of {ranks * minibatches}"
    )


def lonely_draws(config: DictConfig, ranks: int) -> str | None:
    """A server is asked by all ranks together, and these rollouts draw again as often as each rank needs it."""
    rollout = config.rollout
    served = str(rollout.engine.get("_target_")).endswith(".VLLMEngine")
    if ranks == 1 or not served or rollout.get("_target_") == "callbacks.rollout_generation.RolloutGeneration":
        return None
    return (
        f"rollout: {str(rollout.get('_target_')).rpartition('.')[2]} cannot draw from a vLLM server on {ranks} ranks "
        "(each draws again as often as it needs, and the server is asked by all together): choose rollout=vllm, "
        "an engine in the process, or trainer.devices=1"
    )


def device_count(trainer: DictConfig) -> int | None:
    """Of each node: a count, one index, or auto, which is one process on a CPU; None for what is none of these."""
    devices = trainer.get("devices", 1)
    if isinstance(devices, int) and devices >= 1:
        return devices
    if isinstance(devices, str) and devices.isdecimal() and int(devices) >= 1:
        return int(devices)
    single = isinstance(devices, ListConfig) and len(devices) == 1
    return 1 if single or (devices == "auto" and trainer.get("accelerator") == "cpu") else None
