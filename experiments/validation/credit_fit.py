"""Whether the credit that a reward gives is the credit that the advantage takes, before anything is drawn or loaded."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import torch
from omegaconf import DictConfig

from contrastive_reasoning.advantages import TrustGate
from contrastive_reasoning.rewards.base import Credit, StepCredit
from contrastive_reasoning.tasks.base import Verdict
from experiments.assemble import AssemblyError, build
from experiments.import_paths import is_ours
from experiments.validation.critics import parts_of

Part = tuple[type, DictConfig]
"""A class and the node of the configuration that names it."""


def check_credit_fits(config: DictConfig) -> None:
    """Refuse an advantage that would refuse the reward's credit, and a reward that would refuse the rollouts.

    The advantage is asked by a credit of the kind that the reward gives; no reward is built for it.

    Raises:
        AssemblyError: in a sentence that says what to choose instead.
    """
    parts: list[Part] = [(part_of(node), node) for _, node in parts_of(config.reward)]
    credit = credit_of(parts)
    outer = build(config, "advantage")
    # a gate asks the advantage within it only once it trusts it, which is too late
    for advantage in (outer, getattr(outer, "advantage", outer)):
        try:
            advantage(credit, torch.ones(2, 1, dtype=torch.bool), 2)
        except ValueError as error:
            raise AssemblyError(f"advantage: {error}") from error
    judging = [kind for kind in (*(kind for kind, _ in parts), type(outer)) if getattr(kind, "reads_verdicts", False)]
    if judging and credit.verdicts is None:
        raise AssemblyError(f"reward: no part of it verifies, and {judging[0].__name__} judges values by verdicts")
    if isinstance(outer, TrustGate) and (path := adding_part(config.reward)) is not None:
        raise AssemblyError(
            f"advantage: a trust gate closes the credit of steps alone, and {path}.weight adds their values to the "
            f"outcome, which stays open: use {path}.weight=0 or an advantage without a gate"
        )
    fitted = [kind for kind, _ in parts if getattr(kind, "reads_all_groups", False)]
    if fitted and getattr(part_of(config.rollout), "keeps_what_differs", False):
        raise AssemblyError(
            f"rollout: keeps the groups that differ, and {fitted[0].__name__} learns chances of success from all of "
            "them: use rollout=engine"
        )
    reading = [kind for kind, _ in parts if getattr(kind, "reads_prefix_values", False)]
    if reading and not getattr(part_of(config.rollout), "values_prefixes", False):
        raise AssemblyError(f"reward: {reading[0].__name__} reads values drawn with the rollouts: use rollout=vineppo")


def credit_of(parts: list[Part]) -> Credit:
    """Credit of two rollouts, with steps and starts where these parts of a reward would value them."""
    valuing = [(kind, node) for kind, node in parts if getattr(kind, "values_steps", False)]
    step = StepCredit(0, 0, 0.5, depth=2)
    return Credit(
        outcome=torch.zeros(2),
        parts={kind.__name__: torch.zeros(2) for kind, _ in valuing or parts[:1]},
        steps=[[step], [step]] if valuing else None,
        starts=[0.5, 0.5] if any(_values_starts(*part) for part in valuing) else None,
        metrics={"steps/return": 0.5} if valuing else {},
        verdicts=[Verdict(status="wrong", reason="")] * 2 if any(verifies(kind) for kind, _ in parts) else None,
    )


def adding_part(reward: DictConfig) -> str | None:
    """Where in a reward values of steps are added to the outcome; None where they are left to the advantage."""
    valuing = (found for found in parts_of(reward) if getattr(part_of(found[1]), "values_steps", False))
    return next((path for path, node in valuing if node.get("weight")), None)


def verifies(kind: type) -> bool:
    """Whether the credit of such a reward has verdicts; of a class of someone else's that is not known, and assumed."""
    return bool(getattr(kind, "verifies", not is_ours(kind.__module__)))


def part_of(node: DictConfig) -> Any:
    """The class that a node's ``_target_`` names."""
    module, _, name = str(node._target_).rpartition(".")
    return getattr(import_module(module), name)


def critic_values_states(critic: DictConfig) -> bool:
    """Whether the critic of this node reads states alone, asked without building it.

    An ensemble's is a property of what it was built with, so its member is asked.
    """
    found = getattr(part_of(critic), "values_states", False)
    return critic_values_states(critic.member) if isinstance(found, property) else bool(found)


def _values_starts(kind: type, node: DictConfig) -> bool:
    return critic_values_states(node.critic) if "critic" in node else bool(getattr(kind, "values_starts", False))
