"""Builds finished runs as MLflow returns them."""

from __future__ import annotations

from collections.abc import Mapping

from experiments.mlflow_sync import TrackedRun

SAMPLED, GREEDY = "test/verifier/accuracy_sampled", "test/verifier/accuracy"


def finished(
    name: str,
    *,
    seed: int,
    metrics: Mapping[str, float] | None = None,
    params: Mapping[str, str] | None = None,
    start: float = 0.0,
    **tags: str,
) -> TrackedRun:
    """Returns a finished run with these last metric values; ``tags`` are chosen options of config groups."""
    chosen = {"task": "gsm8k", "objective": "grpo", "advantage": "group_relative", "reward": "verifier"}
    return TrackedRun(
        run_id=f"{name}-{seed}-{start:g}",
        experiment=name,
        status="FINISHED",
        start=start,
        tags={"experiment": name, "seed": str(seed), "git_sha": f"sha{start:g}", **chosen, **tags},
        params={"seed": str(seed), **(params or {})},
        metrics={SAMPLED: 0.5} if metrics is None else metrics,
    )
