"""Errors that names and values of a configuration decide, alone or with a critic's own description; imports no part."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationResolutionError

from experiments.config.composition import critic_checkpoints, leaves
from experiments.config.folders import EMBEDDED, EMBEDDED_FOLDER, experiment_names
from experiments.config.hints import did_you_mean
from experiments.config.stages import STAGES
from experiments.config.types import flaws
from experiments.system.files import name_flaw, quote_name
from experiments.system.launch import is_launched, world_size
from experiments.system.secrets import secret_finder, shorten_paths

SECRET = "holds the environment's"
READ_THERE = "a configuration is written into every run folder; what needs it reads it from the environment itself"
NEEDS_JOB = "HydraConfig was not set"
"""In the error of a reference to Hydra's own configuration, ``${hydra:…}``, which exists only in the run."""
CRITIC_FILE = "critic.json"
FRESH = "fresh"
"""As in ``rewards.critic``, whose import would load torch."""
CHANGES_NO_VALUE = ("seed", "pairs_per_chunk")
"""Arguments of a critic that do not change its values once its weights are loaded."""
SEEDS = 2**63
"""Every seed below it is valid: parts derive from it what their libraries take."""


def contradiction(config: DictConfig) -> str | None:
    return next(_contradictions(config), None)


def _contradictions(config: DictConfig) -> Iterator[str]:
    if OmegaConf.is_missing(config, "name"):
        yield f"choose an experiment: experiment=NAME; there are {', '.join(experiment_names())}"
    lora = OmegaConf.select(config, "policy.lora", throw_on_missing=False)
    if isinstance(lora, str) or (isinstance(lora, DictConfig) and "_target_" not in lora):
        yield f"policy.lora={lora}: it takes null or the keys of a LoRA; choose adapter=lora, and set policy.lora.rank"
    try:
        OmegaConf.to_container(config, resolve=True)
    except InterpolationResolutionError as error:
        if NEEDS_JOB not in str(error):
            yield f"{error.full_key}: {str(error.msg).splitlines()[0]}"
    for key in ("name", "arm", "baseline"):  # each names a folder of the outputs and of the tracker, and a log file
        if config[key] is not None and (flaw := name_flaw(config[key])):
            yield f"{key}={quote_name(config[key])} {flaw}"
        if config[key] in ("True", "False"):  # a text key turns a bool of YAML into these words
            yield f"{key}={config[key]}: YAML reads a plain yes, no, on, off, true or false as a bool; quote {key}"
    if not 0 <= config.seed < SEEDS:
        yield f"seed={config.seed}: must be a whole number from 0 to 2^63 - 1"
    if "\x00" in config.output_dir:
        yield "output_dir holds a NUL, which no path may"
    secret_in = secret_finder()
    for key, value in leaves(config):
        if isinstance(value, str) and (name := secret_in(value)) is not None:
            yield f"{key} {SECRET} {name}: {READ_THERE}"
    stages = list(config.stages)
    for stage in stages:
        if stage not in STAGES:
            yield f"stages: no stage {stage!r}; {did_you_mean(str(stage), STAGES)}"
    if not stages or stages != sorted(set(stages), key=[*STAGES].index):
        yield f"stages must be some of [{', '.join(STAGES)}], in this order, each once; got {stages}"
    yield from flaws(config)
    yield from _unfit_critics(config)
    policy = str(config.policy.get("pretrained"))
    known = [f"{EMBEDDED}{found.parent.name}" for found in EMBEDDED_FOLDER.glob("*/config.json")]
    if policy.startswith(EMBEDDED) and policy not in known:
        yield f"policy.pretrained={policy}: no such policy comes with the package; {did_you_mean(policy, known)}"
    weight = config.objective.get("kl_weight") or 0.0
    if "grpo" in stages and weight > 0 and config.objective.get("kl") and not config.module.get("reference"):
        yield (
            f"objective.kl_weight={weight} weighs the KL to a reference, and there is none: choose "
            "module=grpo_reference, or set objective.kl_weight=0"
        )
    if flaw := precision_flaw(config.trainer.get("precision")):
        yield flaw
    if config.module.get("shard_reference") and config.module.get("offload_reference"):
        yield "module.shard_reference and module.offload_reference: set at most one of them"
    strategy = config.trainer.get("strategy")
    if isinstance(strategy, str) and strategy.endswith(("_spawn", "_fork", "_notebook")):
        yield f"trainer.strategy={strategy}: ranks are processes of their own here: choose trainer=ddp"
    yield from _impossible_devices(config)


def precision_flaw(value: object) -> str | None:
    """Returns an error for a precision of Lightning's trainer other than float32; None if it is float32.

    Its autocast keeps the cast weights over the optimizer steps of a batch, and it scales gradients before they are
    clipped.
    """
    if value is None or str(value) in ("32", "32-true"):
        return None
    return (
        f"trainer.precision={value}: must be 32-true, since updates are wrong under Lightning's autocast and loss "
        "scaling; policy.compute_dtype=bfloat16 computes the policy's passes in bfloat16"
    )


def _unfit_critics(config: DictConfig) -> Iterator[str]:
    """Checks that a reward with a critic has a critic stage before it, or the checkpoint of an equally configured one.

    Weights of the same shapes would also load into a critic with other settings, and its values would differ.
    """
    for path, checkpoint in critic_checkpoints(config.reward) if "grpo" in config.stages else ():
        if checkpoint is None and "critic" not in config.stages:
            yield f"the reward needs a critic: add 'critic' to stages or give {path}.checkpoint=FOLDER"
        elif checkpoint == FRESH and not str(config.online.get("_target_")).endswith(".OutcomeCritic"):
            yield f"{path}.checkpoint={FRESH}: nothing trains that critic: choose online=outcomes or another checkpoint"
        elif checkpoint == FRESH and not config.reward.get("warmup_steps"):
            yield (
                f"{path}.checkpoint={FRESH}: that critic would reward before it is fitted: choose "
                "reward=critic_calibrated with reward.warmup_steps of at least 1"
            )
        elif checkpoint in (None, FRESH):
            continue
        elif not ((folder := Path(checkpoint).expanduser()) / CRITIC_FILE).is_file():
            yield f"{path}.checkpoint={checkpoint}: no critic there ({CRITIC_FILE} is missing)"
        elif wrong := _difference(OmegaConf.select(config, path), folder):
            yield f"{path}.checkpoint={checkpoint}: that critic was trained with {wrong}"


def _difference(reward: DictConfig, folder: Path) -> str | None:
    try:
        saved = json.loads((folder / CRITIC_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        saved = None  # loading the critic reports an unreadable file
    there = saved.get("config") if isinstance(saved, dict) else None
    if first := next(differing(there, OmegaConf.to_container(reward.critic, resolve=True)), None):
        key, other, here = first
        return f"critic.{key}={other}, and this configuration describes one with {here}"
    stage = folder.parent / "config.yaml"
    trained = OmegaConf.select(OmegaConf.load(stage), "loss.temperature") if stage.is_file() else None
    # an explicit reward.temperature may differ on purpose; one interpolated from the loss differs by mistake
    if trained is None or not OmegaConf.is_interpolation(reward, "temperature") or reward.temperature == trained:
        return None
    return f"loss.temperature={trained}, and this configuration reads its values with {reward.temperature}"


def differing(there: Any, here: Any, above: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yields (dotted key, value there, value here) for each key of both whose values differ."""
    if not isinstance(there, dict) or not isinstance(here, dict):
        return
    for key in (key for key in here if key in there and key not in CHANGES_NO_VALUE):
        if isinstance(there[key], dict) and isinstance(here[key], dict):
            yield from differing(there[key], here[key], f"{above}{key}.")
        elif there[key] != here[key] and there[key] != shorten_paths(here[key]):  # as `make publish` writes it
            yield f"{above}{key}", there[key], here[key]


def _impossible_devices(config: DictConfig) -> Iterator[str]:
    """Checks that device counts are numbers, match the started ranks and divide a rollout batch evenly."""
    devices, nodes = config.trainer.get("devices", 1), config.trainer.get("num_nodes", 1)
    count = device_count(config.trainer)
    if count is None:
        yield f"trainer.devices must be a number of devices, got {devices}; CUDA_VISIBLE_DEVICES selects them"
        return
    if not isinstance(nodes, int) or nodes < 1:
        yield f"trainer.num_nodes must be a whole number of at least 1, got {nodes}"
        return
    ranks = count * nodes
    if is_launched() and world_size() != ranks:
        wanted = f"trainer.devices={devices} and trainer.num_nodes={nodes} are {ranks}"
        yield f"{world_size()} ranks were started, but {wanted}"
    if nodes > 1 and not is_launched():
        yield f"trainer.num_nodes={nodes}: start the run by torchrun on every node, see docs/gpus_and_clusters.md"
    if "grpo" not in config.stages:
        return
    problems, minibatches = config.budget.grpo.problems, config.budget.grpo.minibatches
    if problems % (ranks * minibatches) != 0:
        yield (
            f"budget.grpo.problems={problems} cannot be divided evenly over ranks ({ranks}) × mini-batches "
            f"({minibatches}): take a multiple of {ranks * minibatches}"
        )


def device_count(trainer: DictConfig | Mapping[str, Any]) -> int | None:
    """Returns the devices per node of a count, a list of one index or ``auto`` on a CPU (1); None for other values."""
    devices = trainer.get("devices", 1)
    if isinstance(devices, int) and devices >= 1:
        return devices
    if isinstance(devices, str) and devices.isdecimal() and int(devices) >= 1:
        return int(devices)
    single = isinstance(devices, ListConfig | list) and len(devices) == 1
    return 1 if single or (devices == "auto" and trainer.get("accelerator") == "cpu") else None
