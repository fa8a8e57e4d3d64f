"""Which row of a published table an arm repeats: the same objective, the same reward, the same base model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from experiments.arms import Arm, value_of

if TYPE_CHECKING:
    from contrastive_reasoning.evaluation import PublishedTable

METHODS: Mapping[tuple[str, str], str] = {
    (objective, reward): objective.upper() + ending
    for objective in ("grpo", "gspo", "dapo", "gmpo")
    for reward, ending in (("verifier", ""), ("clipo", "+CLIPO"))
}
"""(objective, reward), by the names of their files, → the paper's method."""
MODEL = "policy.pretrained"


@dataclass(frozen=True, kw_only=True)
class PublishedRow:
    """What a paper printed for a method; percentages."""

    method: str
    model: str
    figures: Mapping[str, float]
    """By set or average."""
    deltas: Mapping[str, float]
    """The Δ to the method without CLIPO; empty for such a one."""


def published_row(arm: Arm, table: PublishedTable | None) -> PublishedRow | None:
    """The row of ``table`` that all runs of ``arm`` repeat; None where there is none."""
    if table is None:
        return None
    runs = arm.runs.values()
    methods = {METHODS.get((value_of(run, "objective"), value_of(run, "reward"))) for run in runs}
    method = methods.pop() if len(methods) == 1 else None
    if method is None or method not in table.rows or {value_of(run, MODEL) for run in runs} != {table.model}:
        return None
    model = table.model.rpartition("/")[2]
    return PublishedRow(method=method, model=model, figures=table.rows[method], deltas=table.deltas.get(method, {}))
