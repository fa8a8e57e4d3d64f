"""What one stage hands to the next: the policy, the critic's weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig

POLICY, CRITIC = "policy", "critic"
"""The folders in which a stage leaves what later stages need."""


def parts_of(reward: Any, path: str = "reward") -> Iterator[tuple[str, DictConfig]]:
    """(dotted path, node) of the reward and of those that it is made of, the outermost first."""
    if not isinstance(reward, DictConfig):
        return
    if "_target_" in reward:
        yield path, reward
    for key in reward:
        if "_target_" not in reward or key not in ("critic", "task"):  # a mapping of rewards may call one so
            yield from parts_of(reward[key], f"{path}.{key}")


def critic_checkpoints(reward: Any) -> Iterator[tuple[str, str | None]]:
    """(dotted path, checkpoint) of every part of the reward that asks a critic; None: the critic stage fills it."""
    for path, node in parts_of(reward):
        if "critic" in node and "checkpoint" in node:
            yield path, node.checkpoint


def open_critics(config: DictConfig) -> list[str]:
    """Paths of the reward's critics that still need a checkpoint."""
    return [path for path, checkpoint in critic_checkpoints(config.reward) if checkpoint is None]


def parents(stage: str, config: DictConfig) -> list[str]:
    """The stages of this experiment whose results ``stage`` uses."""
    earlier = list(config.stages)[: list(config.stages).index(stage)]
    wanted = {
        "warm_start": (),
        "critic": (),
        "grpo": ("warm_start", *(("critic",) if open_critics(config) else ())),
        "evaluate": ("warm_start", "grpo"),
    }[stage]
    return [name for name in wanted if name in earlier]


def filled(stage: str, config: DictConfig, folders: Mapping[str, Path]) -> dict[str, Any]:
    """The values, by dotted path, that finished stages give to the configuration of ``stage``."""
    values: dict[str, Any] = {}
    if config.policy.pretrained is None and stage in ("grpo", "evaluate") and "warm_start" in folders:
        values |= {"policy.pretrained": str(folders["warm_start"] / POLICY)}
    if stage == "grpo" and "critic" in folders:
        values |= {f"{path}.checkpoint": str(folders["critic"] / CRITIC) for path in open_critics(config)}
    return values
