"""Whether the critic that is to learn online can: one critic in the reward, and one that reads states alone."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.critics.base import values_states
from experiments.assemble import AssemblyError, build
from experiments.wiring import critic_checkpoints


def check_online(config: DictConfig) -> None:
    """Refuse settings of the online critic, or a reward that it has nothing to teach; no critic is built for it.

    Raises:
        AssemblyError: in a sentence that says what to choose instead.
    """
    build(config, "online")
    if "lessons" not in config.online:
        return
    critics = [
        str(OmegaConf.select(config, f"{path}.critic._target_")) for path, _ in critic_checkpoints(config.reward)
    ]
    if len(critics) != 1:
        raise AssemblyError(f"online: trains the one critic of the reward, which has {len(critics)}: use reward=critic")
    kind = _part(critics[0])
    if not values_states(kind):
        raise AssemblyError(
            f"online: trains critics that read states, {kind.__name__} reads more: use critic=joint or "
            "critic=numeric_v2, or online=none"
        )


def _part(target: str) -> Any:
    """The class that a ``_target_`` names."""
    module, _, name = target.rpartition(".")
    return getattr(import_module(module), name)
