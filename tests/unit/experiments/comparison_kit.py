"""Runs as MLflow tells them, made by hand."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.track import RunRecord


def finished(
    name: str,
    *,
    seed: int,
    metrics: Mapping[str, float],
    objective: str = "grpo",
    reward: str = "verifier",
    params: Mapping[str, str] | None = None,
) -> RunRecord:
    """A finished run of an experiment with these last values."""
    chosen = {"task": "gsm8k", "objective": objective, "advantage": "group_relative", "reward": reward}
    tags = {"experiment": name, "seed": str(seed), **chosen}
    return RunRecord(
        run_id=f"{name}-{seed}",
        experiment=name,
        status="FINISHED",
        start=0.0,
        tags=tags,
        params={"seed": str(seed), **(params or {})},
        metrics=metrics,
    )
