"""What a composed configuration shows to be wrong by itself, before anything is imported, loaded or drawn."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.config.composition import critic_checkpoints, dangling_reference, leaves, parts
from experiments.config.folders import EMBEDDED, EMBEDDED_FOLDER, experiment_names
from experiments.config.hints import did_you_mean
from experiments.config.whole import wrong_key_or_value
from experiments.schema import STAGES
from experiments.system.files import name_flaw, quoted
from experiments.system.launch import launched, world_size
from experiments.system.secrets import secret_finder

SECRET = "holds the environment's"
READ_THERE = "a configuration is written into every run folder; what needs it reads it from the environment itself"
CRITIC_FILE = "critic.json"
CHANGES_NO_VALUE = ("seed", "pairs_per_chunk")
"""Arguments of a critic that its values do not depend on, once its weights are loaded."""

DTYPES = ("float32", "bfloat16", "float16")
ON_BAD = ("refuse", "leave_out")
CHOICES: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "contrastive_reasoning.critics.TextCritic": {"style": ("longproc", "annotated")},
    "contrastive_reasoning.critics.load_encoder": {"dtype": DTYPES},
    "contrastive_reasoning.tasks.problem_set.problem_sets": {"on_bad": ON_BAD},
    "contrastive_reasoning.policies.load.load_policy": {
        "weights_dtype": DTYPES,
        "compute_dtype": DTYPES,
        "kernels": ("torch", "liger"),
    },
    "contrastive_reasoning.rewards.CLIPOReward": {"level": ("group", "cross", "batch"), "positives": ("one", "all")},
    "contrastive_reasoning.tasks.problem_set.AnswerTask": {"judge": ("answer", "choice"), "on_bad": ON_BAD},
    "contrastive_reasoning.tasks.arithmetic.task.ArithmeticTask": {
        "test": ("in_distribution", "perturb_simple", "perturb_hard")
    },
    "contrastive_reasoning.tasks.countdown.task.CountdownTask": {
        "style": ("longproc", "annotated", "direct"),
        "train": ("generated", "longproc", "file"),
        "test": ("longproc", "generated"),
        "on_bad": ON_BAD,
    },
    "contrastive_reasoning.tasks.problem_set.FunctionTask": {"on_bad": ON_BAD},
    "contrastive_reasoning.tasks.stand_in.StandInTask": {"source": ("hub", "generated")},
    "lightning.Trainer": {
        "accelerator": ("auto", "cpu", "cuda", "gpu", "mps", "tpu"),
        "precision": (
            *("32-true", "bf16-mixed", "bf16-true", "16-mixed", "16-true", "64-true"),
            *("bf16", "16", "32", "64", "transformer-engine", "transformer-engine-float16"),
        ),
    },
    "lightning_modules.optim.AdamW": {"schedule": ("constant", "linear", "cosine")},
}
"""Part → its argument → the words that it may be: what reads them would take seconds to import. A test compares them
with the code. Arguments of other parts, one's own too, are not checked."""
SEVERAL_KINDS: Mapping[str, tuple[str, ...]] = {"lightning.Trainer": ("devices", "precision")}
"""Part → its arguments that take a number as well as a word or a list: ``trainer.devices=auto``."""


def contradiction(config: DictConfig) -> str | None:
    """The first thing that cannot work, in one sentence; None where nothing is known to be wrong."""
    checks: tuple[Callable[[DictConfig], str | None], ...] = (
        no_experiment,
        missing_key,
        bad_folder_name,
        secret_value,
        unknown_stage,
        wrong_key_or_value,
        unknown_word,
        small_group,
        missing_critic,
        other_critic,
        unknown_policy,
        missing_reference,
        impossible_devices,
    )
    return next((sentence for check in checks if (sentence := check(config)) is not None), None)


def no_experiment(config: DictConfig) -> str | None:
    if not OmegaConf.is_missing(config, "name"):
        return None
    return f"choose an experiment: experiment=NAME; there are {', '.join(experiment_names())}"


def missing_key(config: DictConfig) -> str | None:
    """A reference to a key that is not there; where it is read later, its own key is not known any more."""
    found = dangling_reference(config)
    return None if found is None else f"{found[0]}: {found[1]}"


def bad_folder_name(config: DictConfig) -> str | None:
    """A name becomes a folder of the outputs and of the tracker, an arm the name of a log."""
    for key in ("name", "arm"):
        if config[key] is not None and (flaw := name_flaw(config[key])):
            return f"{key}={quoted(config[key])} {flaw}"
    return "output_dir holds a NUL, which no path may" if "\x00" in config.output_dir else None


def secret_value(config: DictConfig) -> str | None:
    """The configuration is written into every run folder and sent to the tracker."""
    secret_in = secret_finder()
    for key, value in leaves(config):
        if isinstance(value, str) and (name := secret_in(value)) is not None:
            return f"{key} {SECRET} {name}: {READ_THERE}"
    return None


def unknown_stage(config: DictConfig) -> str | None:
    stages = list(config.stages)
    for stage in stages:
        if stage not in STAGES:
            return f"stages: no stage {stage!r}; {did_you_mean(str(stage), STAGES)}"
    if not stages or stages != sorted(set(stages), key=STAGES.index):
        return f"stages must be some of [{', '.join(STAGES)}], in this order, each once; got {stages}"
    return None


def unknown_word(config: DictConfig) -> str | None:
    """The first value that is none of its argument's words."""
    for path, part in parts(config):
        for argument, words in CHOICES.get(str(part.get("_target_")), {}).items():
            with suppress(OmegaConfBaseException):  # a missing reference has its own message
                value = part.get(argument)
                if isinstance(value, str | int | float) and str(value) not in words:
                    hint = did_you_mean(str(value), words, names=words)
                    return f"{path}.{argument}={value}: no such {argument}; {hint}"
    return None


def takes_several_kinds(config: DictConfig, key: str) -> bool:
    """Whether values of more than one kind are valid at this dotted key; they are checked later."""
    above, _, argument = key.rpartition(".")
    part = OmegaConf.select(config, above) if above else config
    target = str(part.get("_target_")) if isinstance(part, DictConfig) else ""
    return argument in SEVERAL_KINDS.get(target, ())


def small_group(config: DictConfig) -> str | None:
    size = config.rollout.group_size
    if "grpo" in config.stages and (not isinstance(size, int) or size < 2):
        return f"rollout.group_size must be a whole number of at least 2 (advantages compare a group), got {size}"
    return None


def missing_critic(config: DictConfig) -> str | None:
    """A reward with a critic needs a critic stage before it or a checkpoint that exists."""
    for path, checkpoint in _critics_in_use(config):
        if checkpoint is None and "critic" not in config.stages:
            return f"the reward asks a critic: add 'critic' to stages or give {path}.checkpoint=FOLDER"
        if checkpoint is not None and not (Path(checkpoint) / CRITIC_FILE).is_file():
            return f"{path}.checkpoint={checkpoint}: no critic there ({CRITIC_FILE} is missing)"
    return None


def other_critic(config: DictConfig) -> str | None:
    """Weights of the same shapes would load into a critic that was configured otherwise, and give other values."""
    for path, checkpoint in _critics_in_use(config):
        if checkpoint is not None and (wrong := _difference(OmegaConf.select(config, path), Path(checkpoint))):
            return f"{path}.checkpoint={checkpoint}: that critic was trained with {wrong}"
    return None


def _critics_in_use(config: DictConfig) -> Iterator[tuple[str, str | None]]:
    return critic_checkpoints(config.reward) if "grpo" in config.stages else iter(())


def _difference(reward: DictConfig, folder: Path) -> str | None:
    saved, wanted = _saved_config(folder), OmegaConf.to_container(reward.critic, resolve=True)
    for key, there, here in differing(saved, wanted):
        return f"critic.{key}={there}, and this configuration describes one with {here}"
    stage = folder.parent / "config.yaml"
    trained = OmegaConf.select(OmegaConf.load(stage), "loss.temperature") if stage.is_file() else None
    # a temperature given for the reward is a choice, one that follows the loss a mistake
    if trained is None or not OmegaConf.is_interpolation(reward, "temperature") or reward.temperature == trained:
        return None
    return f"loss.temperature={trained}, and this configuration reads its values with {reward.temperature}"


def differing(there: Any, here: Any, above: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, there, here) of the keys that both have with other values; none where there is nothing to read."""
    if not isinstance(there, dict) or not isinstance(here, dict):
        return
    for key in (key for key in here if key in there and key not in CHANGES_NO_VALUE):
        if isinstance(there[key], dict) and isinstance(here[key], dict):
            yield from differing(there[key], here[key], f"{above}{key}.")
        elif there[key] != here[key]:
            yield f"{above}{key}", there[key], here[key]


def _saved_config(folder: Path) -> Any:
    """The configuration that a critic was built from; None for a file that cannot be read, which loading reports."""
    try:
        saved = json.loads((folder / CRITIC_FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return saved.get("config") if isinstance(saved, dict) else None


def unknown_policy(config: DictConfig) -> str | None:
    """A policy of the package must be one of those that are there."""
    name = config.policy.get("pretrained")
    known = [f"{EMBEDDED}{found.parent.name}" for found in EMBEDDED_FOLDER.glob("*/config.json")]
    if not str(name).startswith(EMBEDDED) or name in known:
        return None
    return f"policy.pretrained={name}: no such policy comes with the package; {did_you_mean(name, known)}"


def missing_reference(config: DictConfig) -> str | None:
    """A KL over whole distributions needs the reference's logits."""
    kl = config.objective.get("kl") or {}
    if "grpo" not in config.stages or not str(kl.get("_target_")).endswith(".FullKL") or config.module.reference:
        return None
    return "the objective compares with a reference over the whole vocabulary: choose module=grpo_reference"


def impossible_devices(config: DictConfig) -> str | None:
    """Counts of devices must be numbers, those of the ranks that were started, and divide a rollout batch evenly."""
    devices, nodes = config.trainer.get("devices", 1), config.trainer.get("num_nodes", 1)
    count = device_count(config.trainer)
    if count is None:
        return f"trainer.devices must be how many (CUDA_VISIBLE_DEVICES says which), got {devices}"
    if not isinstance(nodes, int) or nodes < 1:
        return f"trainer.num_nodes must be a whole number of at least 1, got {nodes}"
    ranks = count * nodes
    if launched() and world_size() != ranks:
        wanted = f"trainer.devices={devices} and trainer.num_nodes={nodes} are {ranks}"
        return f"{world_size()} ranks were started, but {wanted}"
    if nodes > 1 and not launched():
        return f"trainer.num_nodes={nodes}: start the run by torchrun on every node, see docs/scaling.md"
    return (_uneven_ranks(config, ranks) or _server_of_ranks(config, ranks)) if "grpo" in config.stages else None


def _uneven_ranks(config: DictConfig, ranks: int) -> str | None:
    problems, minibatches = config.budget.grpo.problems, config.budget.grpo.minibatches
    if problems % (ranks * minibatches) == 0:
        return None
    return (
        f"budget.grpo.problems={problems} cannot be shared out evenly over ranks ({ranks}) × mini-batches "
        f"({minibatches}): take a multiple of {ranks * minibatches}"
    )


def _server_of_ranks(config: DictConfig, ranks: int) -> str | None:
    """All ranks together ask a vLLM server, so rollouts that a rank may draw again cannot come from one."""
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
    """Of each node: a count, one index, or auto, which is one process on a CPU; None for any other value."""
    devices = trainer.get("devices", 1)
    if isinstance(devices, int) and devices >= 1:
        return devices
    if isinstance(devices, str) and devices.isdecimal() and int(devices) >= 1:
        return int(devices)
    single = isinstance(devices, ListConfig) and len(devices) == 1
    return 1 if single or (devices == "auto" and trainer.get("accelerator") == "cpu") else None
