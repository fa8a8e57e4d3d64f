"""A track of a paper: problem sets asked in one way, and the averages over them that its tables report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import mean

from contrastive_reasoning.evaluation.evaluator import Evaluation
from contrastive_reasoning.evaluation.so_far import Watch
from contrastive_reasoning.evaluation.suite import Setting, Suite
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.published import PublishedTable, published_table
from contrastive_reasoning.rollout.base import RolloutEngine
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.tasks.base import Task

SAMPLED = "_sampled"
"""How quantities of sampled completions end."""


@dataclass(frozen=True, kw_only=True)
class Track:
    """Called as a :class:`Suite` with one setting per set; adds ``average/<name>`` to its metrics."""

    engine: RolloutEngine
    sets: Mapping[str, Task]
    problems: int | None
    """The first so many problems of each set; None: all."""
    samples: int
    sampling: Sampling
    greedy: Sampling
    k_values: Sequence[int]
    quantity: str
    """What is averaged: ``verifier/accuracy``, of greedy completions, or ``verifier/accuracy_sampled``."""
    averages: Mapping[str, Sequence[str]]
    """Name → sets; each set counts the same, whatever its size."""
    published: str | None
    """The table of a paper that is shown beside ours: see :func:`published_table`."""
    compare_with: str | None
    """The row of that table which ours is compared with."""

    def __post_init__(self) -> None:
        for name, sets in self.averages.items():
            if unknown := [one for one in sets if one not in self.sets]:
                raise ValueError(f"averages.{name}: no set {', '.join(unknown)}; there are {', '.join(self.sets)}")
        if self.quantity.endswith(SAMPLED) and not self.samples:
            raise ValueError(f"quantity={self.quantity} needs samples ≥ 1, got {self.samples}")
        rows = self.published_table.rows if self.published_table else {}
        if self.compare_with is not None and self.compare_with not in rows:
            known = ", ".join(rows) or "no published table"
            raise ValueError(f"compare_with: no row {self.compare_with!r}; there are {known}")

    @property
    def settings(self) -> dict[str, Setting]:
        """One per set, all asked in the same way."""
        return {
            name: Setting(
                task=task,
                problems=self.problems,
                samples=self.samples,
                sampling=self.sampling,
                greedy=self.greedy,
                k_values=self.k_values,
            )
            for name, task in self.sets.items()
        }

    @property
    def columns(self) -> dict[str, str]:
        """What stands in the columns of a table: set or average → its metric."""
        own = {name: f"{name}/{self.quantity}" for name in self.sets}
        return own | {name: f"average/{name}" for name in self.averages}

    @property
    def published_table(self) -> PublishedTable | None:
        return None if self.published is None else published_table(self.published)

    @property
    def size(self) -> int:
        """Problems of all sets."""
        return self._suite.size

    @property
    def _suite(self) -> Suite:
        return Suite(engine=self.engine, settings=self.settings, published=self.published)

    def __call__(self, policy: CausalLMPolicy, *, seed: int, watch: Watch | None = None) -> Evaluation:
        """Evaluate the policy on every set, and average."""
        found = self._suite(policy, seed=seed, watch=watch)
        averages = {
            f"average/{name}": mean(found.metrics[f"{one}/{self.quantity}"] for one in sets)
            for name, sets in self.averages.items()
        }
        return replace(found, metrics={**found.metrics, **averages})
