"""Runs as MLflow tells them, made by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from experiments.compare import CURVE, METRIC
from experiments.tracking.tracked_run import TrackedRun

PLAIN: Any = {"metric": METRIC, "sets": None, "by": None, "baseline": None, "curve": CURVE}
"""What is wished for where nothing is: arguments of ``compare``."""


def finished(
    name: str,
    *,
    seed: int,
    metrics: Mapping[str, float],
    objective: str = "grpo",
    reward: str = "verifier",
    params: Mapping[str, str] | None = None,
) -> TrackedRun:
    """A finished run of an experiment with these last values."""
    chosen = {"task": "gsm8k", "objective": objective, "advantage": "group_relative", "reward": reward}
    tags = {"experiment": name, "seed": str(seed), **chosen}
    return TrackedRun(
        run_id=f"{name}-{seed}",
        experiment=name,
        status="FINISHED",
        start=0.0,
        tags=tags,
        params={"seed": str(seed), **(params or {})},
        metrics=metrics,
    )


def record(name: str, *, seed: int, start: float = 0.0, value: float = 0.5, **params: str) -> TrackedRun:
    return TrackedRun(
        run_id=f"{name}-{seed}-{start:g}-run",
        experiment=name,
        status="FINISHED",
        start=start,
        tags={"experiment": name, "seed": str(seed), "kind": "experiment", "git_sha": f"sha{start:g}"},
        params={"seed": str(seed), "task.seed": str(seed), **params},
        metrics={METRIC: value},
    )
