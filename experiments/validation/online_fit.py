"""Whether the critic that is to learn online can: one in the reward, at hand, and one that reads states alone."""

from __future__ import annotations

from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.advantages.trust_gate import refuse_stale_trust
from contrastive_reasoning.critics.ensemble import EnsembleCritic
from contrastive_reasoning.rewards.critic_within import INNER
from experiments.assemble import AssemblyError, build
from experiments.validation.credit_fit import critic_values_states, part_of
from experiments.validation.critics import critic_checkpoints


def check_online(config: DictConfig) -> None:
    """Refuse settings of the online critic, or a reward that it has nothing to teach; no critic is built for it.

    Raises:
        AssemblyError: in a sentence that says what to choose instead.
    """
    online = build(config, "online")
    if "lessons" not in config.online:
        return
    try:
        refuse_stale_trust(build(config, "advantage"), online.refresh_every)
    except ValueError as error:
        raise AssemblyError(f"online: {error}") from error
    critics = [path for path, _ in critic_checkpoints(config.reward)]
    if len(critics) != 1:
        raise AssemblyError(f"online: trains the one critic of the reward, which has {len(critics)}: use reward=critic")
    path, node = critics[0], OmegaConf.select(config, f"{critics[0]}.critic")
    kind = part_of(node)
    if issubclass(kind, EnsembleCritic):
        raise AssemblyError(
            f"online: teaches one critic, and the members of an {kind.__name__} learn each from its own draws: "
            "use critic=joint or critic=numeric_v2, or online=none"
        )
    if not critic_values_states(node):
        raise AssemblyError(
            f"online: trains critics that read states, {kind.__name__} reads more: use critic=joint or "
            "critic=numeric_v2, or online=none"
        )
    if hidden := _hidden(config, path):
        raise AssemblyError(
            f"online: finds no critic within {hidden.__name__}, which holds it under a name other than "
            f"{', '.join(INNER)} or rewards: use reward=critic, or online=none"
        )


def _hidden(config: DictConfig, path: str) -> type | None:
    """The part of the reward around its critic that keeps it from the online one, if there is one."""
    keys = path.split(".")
    for depth in range(1, len(keys)):
        if keys[depth] not in (*INNER, "rewards") and keys[depth - 1] != "rewards":
            return part_of(OmegaConf.select(config, ".".join(keys[:depth])))
    return None
