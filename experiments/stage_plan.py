"""What a stage is about to do, and whether it was done before: its relevant configuration, parents and fingerprint."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.policies.load import EMBEDDED, resolve
from experiments.assemble import AssemblyError
from experiments.fingerprint import fingerprint, folder_hash
from experiments.rooms import versions
from experiments.wiring import critic_checkpoints, parents

KEYS = {
    "warm_start": ("seed", "policy", "warm_start"),
    "critic": ("seed", "task", "critic", "loss", "datamodule", "pretraining"),
    "grpo": ("seed", "policy", "prompts", "rollout", "objective", "advantage", "reward", "optimizer", "module"),
    "evaluate": ("seed", "policy", "suite"),
}
"""Of the configuration, what decides the result of each stage; ``budget.<stage>`` and the numerics are added."""
NUMERICS = ("accelerator", "devices", "num_nodes", "strategy", "precision")
"""Of the trainer, what decides the result."""


@dataclass(frozen=True, kw_only=True)
class StagePlan:
    """One stage of one experiment, before it runs."""

    name: str
    config: Mapping[str, Any]
    """Its relevant part of the configuration, resolved."""
    parents: Mapping[str, str]
    """Stage → fingerprint of what it builds on."""
    versions: Mapping[str, int]
    """Module or room → version, of the code it uses."""
    fingerprint: str
    folder: Path


def plan_stage(stage: str, config: DictConfig, finished: Mapping[str, StagePlan]) -> StagePlan:
    """Plan ``stage`` on top of the stages that have finished."""
    relevant = relevant_config(stage, config)
    above = {name: finished[name].fingerprint for name in parents(stage, config) if name in finished}
    used = versions(relevant)
    content = {"config": relevant, "parents": above, "versions": used, "files": file_hashes(stage, config)}
    mark = fingerprint(content)
    folder = Path(config.output_dir) / "stages" / stage / mark
    return StagePlan(name=stage, config=relevant, parents=above, versions=used, fingerprint=mark, folder=folder)


def relevant_config(stage: str, config: DictConfig) -> dict[str, Any]:
    """What decides the stage's result, interpolations resolved."""
    resolved: Any = OmegaConf.to_container(config, resolve=True)
    trainer = {key: resolved["trainer"][key] for key in NUMERICS}
    return {key: resolved[key] for key in KEYS[stage]} | {"trainer": trainer, "budget": resolved["budget"][stage]}


def file_hashes(stage: str, config: DictConfig) -> dict[str, str]:
    """Path → hash of the folders that the configuration only names: a local policy, a critic's checkpoint."""
    named: list[str] = []
    if stage != "critic" and config.policy.pretrained is not None:
        named.append(_local(config.policy.pretrained))
    if stage == "grpo":
        named += [checkpoint for _, checkpoint in critic_checkpoints(config.reward) if checkpoint is not None]
    return {name: folder_hash(Path(name)) for name in named if Path(name).is_dir()}


def _local(pretrained: str) -> str:
    try:
        return resolve(pretrained) if pretrained.startswith(EMBEDDED) or Path(pretrained).exists() else pretrained
    except (ValueError, OSError) as error:
        raise AssemblyError(str(error)) from error
