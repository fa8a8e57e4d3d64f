"""What a configuration alone shows of the critics that its reward asks: one is there, and it is the one described."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

DESCRIPTION = "critic.json"
CHANGES_NO_VALUE = ("seed", "pairs_per_chunk")
"""Of a critic: what its weights were drawn from, and how many pairs it takes at a time."""


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


def no_critic(config: DictConfig) -> str | None:
    """A reward that asks a critic needs a critic stage before it or a checkpoint that exists."""
    for path, checkpoint in _asked(config):
        if checkpoint is None and "critic" not in config.stages:
            return f"the reward asks a critic: add 'critic' to stages or give {path}.checkpoint=FOLDER"
        if checkpoint is not None and not (Path(checkpoint) / DESCRIPTION).is_file():
            return f"{path}.checkpoint={checkpoint}: no critic there ({DESCRIPTION} is missing)"
    return None


def other_critic(config: DictConfig) -> str | None:
    """Weights of like shapes fit a critic that is described otherwise: they would load, and say something else."""
    for path, checkpoint in _asked(config):
        if checkpoint is not None and (wrong := _unlike(OmegaConf.select(config, path), Path(checkpoint))) is not None:
            return f"{path}.checkpoint={checkpoint}: that critic was trained with {wrong}"
    return None


def _asked(config: DictConfig) -> Iterator[tuple[str, str | None]]:
    return critic_checkpoints(config.reward) if "grpo" in config.stages else iter(())


def _unlike(reward: DictConfig, folder: Path) -> str | None:
    for key, said, wanted in differing(_described(folder), OmegaConf.to_container(reward.critic, resolve=True)):
        return f"critic.{key}={said}, and this configuration describes one with {wanted}"
    trained = _temperature(folder.parent)
    # a temperature that was typed for the reward is a choice, one that follows the loss a mistake
    if trained is None or not OmegaConf.is_interpolation(reward, "temperature") or reward.temperature == trained:
        return None
    return f"loss.temperature={trained}, and this configuration reads its values with {reward.temperature}"


def differing(said: Any, wanted: Any, above: str = "") -> Iterator[tuple[str, Any, Any]]:
    """(dotted key, there, here) of the keys that both have with other values; none where there is nothing to read."""
    if not isinstance(said, dict) or not isinstance(wanted, dict):
        return
    for key in (key for key in wanted if key in said and key not in CHANGES_NO_VALUE):
        if isinstance(said[key], dict) and isinstance(wanted[key], dict):
            yield from differing(said[key], wanted[key], f"{above}{key}.")
        elif said[key] != wanted[key]:
            yield f"{above}{key}", said[key], wanted[key]


def _described(folder: Path) -> Any:
    """The configuration that the critic was built from; None where the file cannot be read, as loading it will say."""
    try:
        said = json.loads((folder / DESCRIPTION).read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return None
    return said.get("config") if isinstance(said, dict) else None


def _temperature(stage: Path) -> float | None:
    """τ of the loss that the stage in this folder trained with; None for a critic that lies elsewhere."""
    path = stage / "config.yaml"
    return OmegaConf.select(OmegaConf.load(path), "loss.temperature") if path.is_file() else None
