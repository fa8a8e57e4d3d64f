"""Plans a stage before it runs: its relevant configuration, its parents and its fingerprint."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, packages_distributions, version
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from experiments.assemble import AssemblyError, with_values
from experiments.config.composition import critic_checkpoints, leaves, open_critics, trains_warm_start
from experiments.config.folders import EMBEDDED, is_ours
from experiments.config.stages import STAGES
from experiments.run_folder.reader import CRITIC, POLICY
from experiments.stages.code_hash import changed_modules, code_hashes, environments, is_installed, named_code
from experiments.system.checksums import content_hash, fingerprint
from experiments.system.devices import device_type

NUMERICS = ("accelerator", "devices", "num_nodes", "strategy", "precision")
"""Trainer settings that affect the result with any value."""
NEUTRAL_VALUES = {
    "_target_": "lightning.Trainer",
    "_partial_": True,
    "deterministic": False,
    "num_sanity_val_steps": 0,
    "use_distributed_sampler": False,
    "inference_mode": False,
}
"""Trainer setting → the value with which it does not affect the result. Those in neither mapping affect it, if set."""
NEUTRAL_SETTINGS = {
    *("enable_progress_bar", "enable_model_summary", "profiler", "enable_autolog_hparams", "model_registry"),
    "max_time",  # a stage that it stops is not finished
    # each stage sets these
    *("max_epochs", "max_steps", "val_check_interval", "check_val_every_n_epoch", "log_every_n_steps", "callbacks"),
    *("enable_checkpointing", "logger", "default_root_dir"),
}
"""Trainer settings that do not affect the result."""
WATCHERS = (
    *(f"callbacks.{name}." for name in ("completions", "cost", "credit", "critic_validation", "health")),
    *(f"callbacks.{name}." for name in ("progress", "projections", "system_metrics", "watchdog")),
)
"""Beginnings of the targets of callbacks that only watch. All others, such as the user's own, may act on training."""
LIBRARIES = ("torch", "transformers", "peft")
"""Libraries whose version affects every result."""
KNOWN = {*LIBRARIES, *sys.stdlib_module_names, "hydra", "lightning"}
"""Packages that a configuration may name, but whose version is recorded anyway or does not affect results."""
READ_BY = {
    "contrastive_reasoning.critics.calibration": ("scikit-learn",),
    "contrastive_reasoning.tasks.answer.symbolic": ("math-verify", "latex2sympy2_extended", "sympy"),
    "contrastive_reasoning.tasks.reasoning_gym": ("reasoning_gym",),
    "contrastive_reasoning.tasks.verifiers.environment": ("verifiers",),
}
"""Module of ours → the libraries whose version affects the result where the module is used."""
NAMING = ("pretrained", "checkpoint", "train_file", "longproc_dir", "prompt_file", "path", "include_path")
"""Keys that may hold the path of a file or folder. Within a node whose target is not ours, any string may be a file."""


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One stage of one experiment, before it runs."""

    name: str
    config: Mapping[str, Any]
    """The relevant part of the configuration, resolved."""
    parents: Mapping[str, str]
    """Parent stage → its fingerprint."""
    files: Mapping[str, str]
    """Path in the configuration → hash of its content."""
    code: Mapping[str, str]
    """Module → hash of its code, for all modules that affect the result; library → its version."""
    settings: str
    """Hash of configuration and files, including those of the parents, without code. Studies identify runs by it."""
    fingerprint: str
    """Hash of ``config``, ``parents``, ``files`` and ``code``; it names the stage's folder."""
    folder: Path


def plan_stages(config: DictConfig, *, accept: Callable[[StagePlan], StagePlan] | None = None) -> dict[str, StagePlan]:
    """Plans every stage that the experiment needs, in order. No stage needs to have run.

    ``accept`` may replace a plan before later stages are planned on top of it.
    """
    config = with_compute_dtype(config)
    planned: dict[str, StagePlan] = {}
    for stage in config.stages:
        if needed(stage, config):
            plan = plan_stage(stage, config, planned)
            planned[stage] = accept(plan) if accept else plan
    return planned


def with_compute_dtype(config: DictConfig) -> DictConfig:
    """Returns the configuration with each ``compute_dtype: auto`` replaced by the dtype of the trainer's device.

    Plans and stages use this one, because the dtype affects the result.
    """
    found = [key for key, value in leaves(config) if key.split(".")[-1] == "compute_dtype" and value == "auto"]
    if not found:
        return config
    from contrastive_reasoning.policies.load import native_dtype  # imports torch, so not before typos are reported

    return with_values(config, dict.fromkeys(found, native_dtype(device_type(config.trainer.get("accelerator")))))


def plan_stage(stage: str, config: DictConfig, earlier: Mapping[str, StagePlan]) -> StagePlan:
    relevant = relevant_config(stage, config)
    above = {name: earlier[name] for name in parents(stage, config) if name in earlier}
    files: dict[str, str] = {}
    chosen = {"config": with_contents(relevant, files)}
    settings = fingerprint(chosen | {"parents": {name: plan.settings for name, plan in above.items()}})
    content = {
        "config": relevant,
        "parents": {name: plan.fingerprint for name, plan in above.items()},
        "files": files,
        "code": _code(relevant, stage),
    }
    mark = fingerprint(content)
    folder = Path(config.output_dir) / "stages" / stage / mark
    return StagePlan(name=stage, **content, settings=settings, fingerprint=mark, folder=folder)


def _code(relevant: Mapping[str, Any], stage: str) -> dict[str, str]:
    hashes = code_hashes(relevant, [STAGES[stage].run])
    libraries = {*LIBRARIES, *(name for module, names in READ_BY.items() if module in hashes for name in names)}
    return hashes | _versions(libraries) | _installed_code(relevant)


def _versions(libraries: Iterable[str]) -> dict[str, str]:
    """Returns library → version, without those that are not installed: building what needs them will raise."""
    found = dict[str, str]()
    for name in sorted(libraries):
        with suppress(PackageNotFoundError):
            found[name] = version(name)
    return found


def _installed_code(relevant: Mapping[str, Any]) -> dict[str, str]:
    """Returns distribution → version of the user's code that is not hashed, because it was installed."""
    named = {path.partition(".")[0] for path in (*named_code(relevant), *environments(relevant))}
    installed = sorted(name for name in named - KNOWN if is_installed(name))
    owners = packages_distributions() if installed else {}  # reads the files of all packages
    return {owner: version(owner) for name in installed for owner in owners.get(name, ())}


def needed(stage: str, config: DictConfig) -> bool:
    """Whether the stage must run; False for the critic stage if GRPO loads all its critics from checkpoints."""
    given = "grpo" in config.stages and any(critic_checkpoints(config.reward)) and not open_critics(config)
    return not (stage == "critic" and given)


def parents(stage: str, config: DictConfig) -> list[str]:
    """Returns the stages of this experiment whose results ``stage`` uses."""
    earlier = list(config.stages)[: list(config.stages).index(stage)]
    start = ("warm_start",) if trains_warm_start(config) else ()
    wanted = {
        "warm_start": (),
        "critic": (),
        "grpo": (*start, *(("critic",) if open_critics(config) else ())),
        "evaluate": (*start, "grpo"),
    }[stage]
    return [name for name in wanted if name in earlier]


def values_from_parents(stage: str, config: DictConfig, folders: Mapping[str, Path]) -> dict[str, Any]:
    """Returns dotted key → value for the settings of ``stage`` that come from finished stages."""
    values: dict[str, Any] = {}
    if trains_warm_start(config) and stage in ("grpo", "evaluate") and "warm_start" in folders:
        values |= {"policy.pretrained": str(folders["warm_start"] / POLICY)}
    if stage == "grpo" and "critic" in folders:
        values |= {f"{path}.checkpoint": str(folders["critic"] / CRITIC) for path in open_critics(config)}
    return values


def changed_since(plan: StagePlan) -> list[str]:
    """Lists files, and modules not imported yet, that have changed since the stage was planned."""
    files: dict[str, str] = {}
    with_contents(plan.config, files)
    code = changed_modules(_code(plan.config, plan.name), plan.code)
    return changed_modules(files, plan.files) + [module for module in code if module not in sys.modules]


def relevant_config(stage: str, config: DictConfig) -> dict[str, Any]:
    """Returns the part of the configuration that affects the stage's result, with interpolations resolved."""
    parts = {key: plain(config[key]) for key in ("seed", *STAGES[stage].result)}
    return (
        parts
        | {"trainer": _trainer_settings(config.trainer), "budget": plain(config.budget[stage])}
        | ({"callbacks": acting} if (acting := _acting_callbacks(stage, config)) else {})
    )


def _trainer_settings(trainer: DictConfig) -> dict[str, Any]:
    further = (key for key in map(str, trainer) if key not in NEUTRAL_SETTINGS and key not in NUMERICS)
    settings = {key: plain(trainer[key]) for key in (*NUMERICS, *further)}
    return {
        key: value for key, value in settings.items() if key in NUMERICS or value not in (None, NEUTRAL_VALUES.get(key))
    }


def _acting_callbacks(stage: str, config: DictConfig) -> dict[str, Any]:
    """Returns the callbacks of the stage that may act on training: none of the shipped ones."""
    if stage == "evaluate":
        return {}
    acting = {
        f"{group}.{name}": plain(node)
        for group in ("every", stage)
        for name, node in (config.callbacks[group] or {}).items()
        if node is not None and not str(node.get("_target_", "")).startswith(WATCHERS)
    }
    return dict(sorted(acting.items()))


def plain(value: Any) -> Any:
    """Converts to dictionaries, lists and scalars, with interpolations resolved."""
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def with_contents(node: Any, files: dict[str, str], *, key: str = "", foreign: bool = False) -> Any:
    """Replaces paths of policies, critics and problem files by hashes of their contents; hub names remain.

    Args:
        node: a resolved configuration, or a value in it.
        files: path → hash; those that are found are added.
        key: the key of the value.
        foreign: whether it is in a node whose target is not ours. There any string may name a file.
    """
    if isinstance(node, Mapping):
        foreign = not is_ours(str(node["_target_"])) if "_target_" in node else foreign
        return {name: with_contents(value, files, key=name, foreign=foreign) for name, value in node.items()}
    if isinstance(node, list):
        return [with_contents(value, files, key=key, foreign=foreign) for value in node]
    if isinstance(node, str) and (key in NAMING or (foreign and _is_file(node))) and (path := _local(key, node)):
        files[node] = files.get(node) or content_hash(path)
        return files[node]
    return node


def _is_file(name: str) -> bool:
    return os.path.isfile(os.path.expanduser(name))  # Path would raise for a text that is too long for a name


def _local(key: str, name: str) -> Path | None:
    """Returns the local path that a value means; None for a name on the hub.

    A run or stage as the policy means the policy that it trained, and a pattern its only match.
    """
    from contrastive_reasoning.policies.load import resolve, trained_policy  # torch: not before typos are reported

    try:
        if name.startswith(EMBEDDED):
            return Path(resolve(name))
        path = Path(name).expanduser()
        path = trained_policy(path) if key == "pretrained" else path
    except (ValueError, OSError) as error:
        raise AssemblyError(str(error)) from error
    if "*" in path.name and len(matching := list(path.parent.glob(path.name))) == 1:
        return matching[0]
    return path if path.exists() else None
