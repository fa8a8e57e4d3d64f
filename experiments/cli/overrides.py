"""What was typed to start this run."""

from __future__ import annotations

from hydra.core.hydra_config import HydraConfig

from experiments.cli.own_conf import as_typed


def typed_overrides() -> list[str] | None:
    """The overrides, of one job of a sweep its own, and the folder of one's own; None where Hydra started nothing."""
    return [*HydraConfig.get().overrides.task, *as_typed()] if HydraConfig.initialized() else None
