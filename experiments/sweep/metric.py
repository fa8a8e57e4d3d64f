"""The number by which the jobs of a sweep are ordered: the first of a short list that there is."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from experiments.run_folder import read_json

PRIMARY = (
    "test/verifier/accuracy_sampled",
    "test/verifier/accuracy",
    "val/verifier/accuracy_sampled",
    "val/verifier/accuracy",
    "val/oracle/auroc_depth1",
)
"""All of them shares, where more is better: sampled success varies least, a critic alone has only the last."""


class Found(NamedTuple):
    """A metric and its value."""

    name: str
    value: float

    def __str__(self) -> str:
        """``0.412 test accuracy_sampled``."""
        return f"{self.value:.3f} {self.name.partition('/')[0]} {self.name.rpartition('/')[2]}"


def first_of(metrics: Mapping[str, float]) -> Found | None:
    return next((Found(name, metrics[name]) for name in PRIMARY if name in metrics), None)


def final_metrics(run: Path | None) -> dict[str, float]:
    """Every metric of a run that has ended, at its last step; the empty mapping before its end."""
    stages = {} if run is None else read_json(run / "summary.json").get("metrics", {})
    return {name: value for metrics in stages.values() for name, value in metrics.items()}


def primary(run: Path | None) -> Found | None:
    return first_of(final_metrics(run))
