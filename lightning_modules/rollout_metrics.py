"""What is logged of rollouts and their rewards, as plain numbers by name."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import get_args

from torch import Tensor

from contrastive_reasoning.advantages import Advantage, StatefulAdvantage
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Status, Task, Verdict


def credit_metrics(credit: Credit) -> dict[str, float]:
    """Means of the outcome and of every part by name, steps valued per rollout, shares of the verdicts.

    Rollouts that the reward failed on count in no mean of a reward; where it failed on all there is none.
    """
    metrics: dict[str, float] = {}
    if rewarded := [row for row in range(len(credit.outcome)) if row not in credit.failures]:
        named = {**credit.parts, "outcome": credit.outcome}
        metrics.update({f"train/reward/{name}": part[rewarded].double().mean().item() for name, part in named.items()})
    metrics.update({f"train/{name}": value for name, value in credit.metrics.items()})
    if credit.steps is not None:
        metrics["train/reward/steps"] = sum(map(len, credit.steps)) / max(len(credit.steps), 1)
    if credit.verdicts is not None:
        metrics.update(verdict_shares(credit.verdicts, prefix="train/verdict/"))
    return metrics


def reward_counts(credit: Credit | None) -> dict[str, float]:
    """Over how many rollouts each mean of a reward in ``credit_metrics`` is."""
    if credit is None:
        return {}
    rewarded = float(len(credit.outcome) - len(credit.failures))
    return {f"train/reward/{name}": rewarded for name in (*credit.parts, "outcome")}


def verdict_shares(verdicts: Sequence[Verdict], *, prefix: str) -> dict[str, float]:
    """The share of every status, those that did not occur included: a line that starts to rise was there before."""
    counts = Counter(verdict.status for verdict in verdicts)
    return {f"{prefix}{status}": counts[status] / max(len(verdicts), 1) for status in get_args(Status)}


def rollout_metrics(rollouts: RolloutBatch) -> dict[str, float]:
    """Length of completions and the share cut off."""
    lengths = rollouts.mask.sum(dim=1).double()
    cut = sum(reason == "length" for reason in rollouts.finish_reasons)
    return {
        "train/rollout/completion_tokens": lengths.mean().item(),
        "train/rollout/truncated": cut / max(len(rollouts), 1),
    }


def advantage_metrics(advantage: Advantage, advantages: Tensor, group_size: int) -> dict[str, float]:
    """The share of groups that teach anything, and what an advantage with a memory has to say."""
    informative = (advantages != 0).view(-1, group_size * advantages.shape[1]).any(dim=1)
    told = advantage.metrics if isinstance(advantage, StatefulAdvantage) else {}
    named = {f"train/{name}": value for name, value in told.items()}
    return {"train/advantage/informative_groups": informative.double().mean().item(), **named}


def accuracy(verdicts: Sequence[Verdict]) -> float:
    return sum(verdict.correct for verdict in verdicts) / len(verdicts)


def success_within_group(verdicts: Sequence[Verdict], group_size: int) -> float:
    """The share of problems with a correct completion in their group: pass@k for k = ``group_size``."""
    groups = [verdicts[start : start + group_size] for start in range(0, len(verdicts), group_size)]
    return sum(any(verdict.correct for verdict in group) for group in groups) / len(groups)


def score_means(task: Task, rollouts: RolloutBatch, count: int) -> Mapping[str, float]:
    """The means of the benchmark's own scores over the first ``count`` rollouts."""
    columns: dict[str, list[float]] = defaultdict(list)
    for row, text in enumerate(rollouts.texts[:count]):
        for name, value in task.scores(rollouts.problem_of(row), text).items():
            columns[name].append(value)
    return {name: sum(values) / count for name, values in columns.items()}
