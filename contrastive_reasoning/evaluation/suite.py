"""A suite: named settings in which a policy is evaluated, each with its own task, token limit and sampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from contrastive_reasoning.evaluation.evaluator import Evaluation, evaluate
from contrastive_reasoning.evaluation.so_far import Rates, Watch
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.published import PublishedTable, published_table
from contrastive_reasoning.rollout.base import RolloutEngine
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.tasks.base import Problem, Task

MAIN = "main"
"""The setting whose metrics keep their plain names."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One way of asking."""

    task: Task
    problems: int | None
    """The first so many test problems; all of them where there are fewer, and with None."""
    samples: int
    """Sampled completions per problem."""
    sampling: Sampling
    greedy: Sampling
    k_values: Sequence[int]
    """pass@k for these k."""

    @property
    def asked(self) -> Sequence[Problem]:
        """The problems themselves."""
        return self.task.problems("test")[: self.problems]


@dataclass(frozen=True, kw_only=True)
class Suite:
    """Settings by name. Metrics of ``main`` keep their names, those of another setting stand under its name.

    Raises:
        ValueError: for a published table that there is not.
    """

    engine: RolloutEngine
    settings: Mapping[str, Setting]
    published: str | None
    """The table of a paper that is shown beside ours: see :func:`published_table`."""

    def __post_init__(self) -> None:
        _ = self.published_table  # there is one, or that is said before anything is evaluated

    @property
    def published_table(self) -> PublishedTable | None:
        return None if self.published is None else published_table(self.published)

    @property
    def columns(self) -> dict[str, str]:
        """What stands in the columns of a table: setting → its metric."""
        return {name: _named(name, "verifier/accuracy") for name in self.settings}

    @property
    def size(self) -> int:
        """Problems of all settings."""
        return sum(len(setting.asked) for setting in self.settings.values())

    def __call__(self, policy: CausalLMPolicy, *, seed: int, watch: Watch | None = None) -> Evaluation:
        """Evaluate the policy in every setting; the rows say which setting they are from.

        ``watch`` is told of the problems of all settings together.
        """
        found: dict[str, Evaluation] = {}
        before = 0
        for name, setting in self.settings.items():
            told = None if watch is None else _within(watch, name, before)
            found[name] = self._evaluate(setting, policy, seed, told)
            before += len(setting.asked)
        return Evaluation(
            metrics={_named(name, key): value for name, one in found.items() for key, value in one.metrics.items()},
            reasons={_named(name, key): count for name, one in found.items() for key, count in one.reasons.items()},
            rows=[{"setting": name, **row} for name, one in found.items() for row in one.rows],
        )

    def _evaluate(self, setting: Setting, policy: CausalLMPolicy, seed: int, watch: Watch | None) -> Evaluation:
        return evaluate(
            policy,
            setting.task,
            setting.asked,
            engine=self.engine,
            samples=setting.samples,
            sampling=setting.sampling,
            greedy=setting.greedy,
            k_values=setting.k_values,
            seed=seed,
            watch=watch,
        )


def _within(watch: Watch, setting: str, before: int) -> Watch:
    """For one setting, when so many problems of others are done."""

    def told(done: int, rates: Rates) -> None:
        watch(before + done, lambda: {_named(setting, name): value for name, value in rates().items()})

    return told


def _named(setting: str, name: str) -> str:
    return name if setting == MAIN else f"{setting}/{name}"
