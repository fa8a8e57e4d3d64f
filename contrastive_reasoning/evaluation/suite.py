"""A suite: named settings in which a policy is evaluated, each with its own task, token limit and sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import mean
from typing import Any, TypeVar, get_args

from contrastive_reasoning.evaluation.evaluator import GREEDY, SEEN, Evaluation, Watch, check_samples, evaluate
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.published import PublishedTable, published_table
from contrastive_reasoning.ranges import one_of
from contrastive_reasoning.rollout.requests import RolloutEngine
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.tasks.base import Problem, Split, Task

Value = TypeVar("Value")
MAIN = "main"
"""The setting whose metrics have no prefix."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One task, with the number of completions of each problem and their sampling.

    Raises ValueError for an unknown split, or if a k of pass@k exceeds the samples.
    """

    task: Task
    split: Split = "test"
    """``train`` evaluates the training problems themselves: how well a policy fits its training data."""
    problems: int | None
    """The first so many problems of the split; all of them if there are fewer, and with None."""
    samples: int
    """Sampled completions per problem."""
    sampling: Sampling
    greedy: Sampling
    k_values: Sequence[int]
    """pass@k for these k."""

    def __post_init__(self) -> None:
        one_of(get_args(Split), split=self.split)
        check_samples(self.samples, self.greedy, self.k_values, problems=self.problems)

    @property
    def selected(self) -> Sequence[Problem]:
        """The problems of this setting."""
        return self.task.problems(self.split)[: self.problems]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Settings by name. Metrics of ``main`` keep their names; those of another setting are prefixed with its name.

    Raises:
        ValueError: for an unknown published table.
    """

    engine: RolloutEngine
    settings: Mapping[str, Setting]
    published: str | None
    """The table of a paper that is shown beside our results: see :func:`published_table`."""

    def __post_init__(self) -> None:
        _ = self.published_table  # raises before anything is evaluated

    @property
    def published_table(self) -> PublishedTable | None:
        return None if self.published is None else published_table(self.published)

    @property
    def columns(self) -> dict[str, str]:
        """The columns of a table: setting → its metric."""
        return {name: GREEDY if name == MAIN else f"{name}/{GREEDY}" for name in self.settings}

    @property
    def main_problems(self) -> str | None:
        """The name of the task in the main setting: with gsm8k at laptop scale, that of the generated stories."""
        return self.settings[MAIN].task.name if MAIN in self.settings else None

    @property
    def size(self) -> int:
        """Number of problems of all settings."""
        return sum(len(setting.selected) for setting in self.settings.values())

    def __call__(self, policy: CausalLMPolicy, *, seed: int, watch: Watch | None = None) -> Evaluation:
        """Evaluates the policy in every setting, which the rows name; ``watch`` counts the problems of all settings."""
        metrics: dict[str, float] = {}
        reasons: dict[str, int] = {}
        rows: list[Mapping[str, Any]] = []
        before = 0
        for name, setting in self.settings.items():
            problems = setting.selected
            found = evaluate(
                policy,
                setting.task,
                problems,
                engine=self.engine,
                samples=setting.samples,
                sampling=setting.sampling,
                greedy=setting.greedy,
                k_values=setting.k_values,
                seed=seed,
                watch=None if watch is None else _within(watch, name, before),
            )
            before += len(problems)
            seen = {SEEN: 1.0} if setting.split == "train" else {}
            metrics |= prefix_names(name, {**found.metrics, **seen})
            reasons |= prefix_names(name, found.reasons)
            rows += [{"setting": name, **row} for row in found.rows]
        return Evaluation(metrics=metrics, reasons=reasons, rows=rows)


def _within(watch: Watch, setting: str, before: int) -> Watch:
    """The callback for one setting, after ``before`` problems of other settings are done."""
    return lambda done, rates: watch(before + done, lambda: prefix_names(setting, rates()))


def prefix_names(setting: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """Values of a setting under the names by which they are logged."""
    return {name if setting == MAIN else f"{setting}/{name}": value for name, value in values.items()}


@dataclass(frozen=True, kw_only=True)
class Track(Suite):
    """A track of a paper: problem sets evaluated in one way, and the averages over them that its tables report.

    A suite with one setting per set, all with the same options, which adds ``average/<name>`` to its metrics.
    """

    settings: Mapping[str, Setting] = field(init=False)
    sets: Mapping[str, Task]
    problems: int | None
    """The first so many problems of each set; None: all."""
    samples: int
    sampling: Sampling
    greedy: Sampling
    k_values: Sequence[int]
    quantity: str
    """The metric that is averaged: ``verifier/accuracy``, of greedy completions, or ``verifier/accuracy_sampled``."""
    averages: Mapping[str, Sequence[str]]
    """Name → sets; each set has the same weight, whatever its size."""
    compare_with: str | None
    """The row of the published table to compare our results with."""

    def __post_init__(self) -> None:
        super().__post_init__()
        settings = {
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
        object.__setattr__(self, "settings", settings)
        for name, sets in self.averages.items():
            if unknown := [one for one in sets if one not in self.sets]:
                raise ValueError(f"averages.{name}: no set {', '.join(unknown)}; there are {', '.join(self.sets)}")
        if self.quantity.endswith("_sampled") and not self.samples:
            raise ValueError(f"quantity={self.quantity} needs samples ≥ 1, got {self.samples}")
        rows = self.published_table.rows if self.published_table else {}
        if self.compare_with is not None and self.compare_with not in rows:
            known = ", ".join(rows) or "no published table"
            raise ValueError(f"compare_with: no row {self.compare_with!r}; there are {known}")

    @property
    def columns(self) -> dict[str, str]:
        """The columns of a table: set or average → its metric."""
        own = {name: f"{name}/{self.quantity}" for name in self.sets}
        return own | {name: f"average/{name}" for name in self.averages}

    def __call__(self, policy: CausalLMPolicy, *, seed: int, watch: Watch | None = None) -> Evaluation:
        """Evaluates the policy on every set, and adds the averages."""
        found = super().__call__(policy, seed=seed, watch=watch)
        averages = {
            f"average/{name}": mean(found.metrics[f"{one}/{self.quantity}"] for one in sets)
            for name, sets in self.averages.items()
        }
        return replace(found, metrics={**found.metrics, **averages})
