"""Launchers and sweepers of Hydra that are not installed, answered with what installs them."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override

from experiments.cli.suggestions import did_you_mean
from experiments.cli.typed_here import installs

GROUPS = ("hydra/launcher", "hydra/sweeper")
EXTRAS = {
    "hydra/launcher=joblib": "joblib",
    "hydra/launcher=submitit_slurm": "slurm",
    "hydra/launcher=submitit_local": "slurm",
    "hydra/launcher=ray": "ray",
    "hydra/launcher=ray_aws": "ray",
    "hydra/sweeper=optuna": "optuna",
}
"""Choice → the extra of this package that brings it."""


def missing_plugin(override: Override) -> str | None:
    """What to install for this choice, or what there is in its place; None where Hydra has it."""
    group, option = override.key_or_group, override.value()
    if group not in GROUPS or override.is_delete():
        return None
    there = GlobalHydra.instance().config_loader().get_group_options(group, ObjectType.CONFIG)
    if option in there:
        return None
    choice = f"{group}={option}"
    if choice in EXTRAS:
        return f"{choice} is not installed: {installs(EXTRAS[choice])}"
    return f"{choice}: no such {group.rpartition('/')[2]}; {did_you_mean(str(option), there)}"


def needs_optuna(overrides: Sequence[Override]) -> str | None:
    """A range without steps among the overrides, of which Hydra's own sweeper can make no jobs."""
    if any(override.key_or_group == "hydra/sweeper" for override in overrides):
        return None
    for override in overrides:
        if override.is_sweep_override() and not override.is_discrete_sweep():
            return f"{override.input_line}: a sweep without steps needs hydra/sweeper=optuna"
    return None
