"""Metrics by name, as plain numbers: of rollouts and their rewards, of validation, and of a critic.

A critic is measured on its training batch, and against the exact oracle on held-out states.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import get_args

import torch
from torch import Tensor
from torchmetrics.functional import spearman_corrcoef
from torchmetrics.functional.classification import binary_auroc, binary_average_precision, binary_calibration_error

from contrastive_reasoning.advantages import Advantage, StatefulAdvantage
from contrastive_reasoning.critics import CriticOracleBatch
from contrastive_reasoning.losses import categorical_accuracy, mean_over
from contrastive_reasoning.losses.masked import masked_logsumexp
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rewards.step_metrics import auroc
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Status, Task, Verdict, correct_in_forms

DEPTHS = (1, 2)
"""Numbers of moves that lead to the held-out states."""
BINS = 15
"""Bins of the calibration error."""


def credit_metrics(credit: Credit) -> dict[str, float]:
    """Means of the outcome and of every part by name, valued steps per rollout, shares of the verdicts.

    Rollouts on which the reward failed count in no mean; if it failed on all, there is no mean.
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
        metrics.update(accuracy_in_forms(credit.verdicts, prefix="train/verifier/accuracy_"))
    return metrics


def reward_counts(credit: Credit | None) -> dict[str, float]:
    """The number of rollouts in each mean of a reward in ``credit_metrics``."""
    if credit is None:
        return {}
    rewarded = float(len(credit.outcome) - len(credit.failures))
    return {f"train/reward/{name}": rewarded for name in (*credit.parts, "outcome")}


def verdict_shares(verdicts: Sequence[Verdict], *, prefix: str) -> dict[str, float]:
    """The share of every status, 0 for those that did not occur."""
    counts = Counter(verdict.status for verdict in verdicts)
    return {f"{prefix}{status}": counts[status] / max(len(verdicts), 1) for status in get_args(Status)}


def accuracy_in_forms(verdicts: Sequence[Verdict], *, prefix: str, suffix: str = "") -> dict[str, float]:
    """The share of correct answers in a box (``boxed``) and in any form (``any``), if the task reports their form."""
    return {f"{prefix}{form}{suffix}": sum(right) / len(right) for form, right in correct_in_forms(verdicts).items()}


def rollout_metrics(rollouts: RolloutBatch) -> dict[str, float]:
    """Mean length of completions and the truncated share."""
    lengths = rollouts.mask.sum(dim=1).double()
    cut = sum(reason == "length" for reason in rollouts.finish_reasons)
    return {
        "train/rollout/completion_tokens": lengths.mean().item(),
        "train/rollout/truncated": cut / max(len(rollouts), 1),
    }


def advantage_metrics(advantage: Advantage, advantages: Tensor, group_size: int) -> dict[str, float]:
    """The share of groups with a gradient, and the metrics of an advantage that keeps a state."""
    informative = (advantages != 0).view(-1, group_size * advantages.shape[1]).any(dim=1)
    own = advantage.metrics if isinstance(advantage, StatefulAdvantage) else {}
    named = {f"train/{name}": value for name, value in own.items()}
    return {"train/advantage/informative_groups": informative.double().mean().item(), **named}


def validation_metrics(
    task: Task, greedy: RolloutBatch, sampled: RolloutBatch | None, *, count: int
) -> dict[str, float]:
    """Accuracy, verdicts and the task's own scores of the greedy completions; pass@k of the sampled ones.

    Args:
        task: verifies them.
        greedy: one completion per problem.
        sampled: a group per problem; None: none were drawn.
        count: the number of problems that count; those after them only fill up a rank's batch.
    """
    verdicts = verdicts_of(task, greedy)[:count]
    correct = sum(verdict.correct for verdict in verdicts)
    metrics = {"verifier/accuracy": correct / count, **verdict_shares(verdicts, prefix="verdict/")}
    metrics |= accuracy_in_forms(verdicts, prefix="verifier/accuracy_")
    columns: dict[str, list[float]] = defaultdict(list)
    for row, text in enumerate(greedy.texts[:count]):
        for name, value in task.scores(greedy.problem_of(row), text).items():
            columns[name].append(value)
    metrics.update({name: sum(values) / count for name, values in columns.items()})
    if sampled is not None:
        size = sampled.group_size
        judged = verdicts_of(task, sampled)[: count * size]
        right = [verdict.correct for verdict in judged]
        solved = sum(any(right[start : start + size]) for start in range(0, len(right), size))
        metrics["verifier/accuracy_sampled"] = sum(right) / len(right)
        metrics |= accuracy_in_forms(judged, prefix="verifier/accuracy_", suffix="_sampled")
        metrics[f"verifier/pass_at_{size}"] = solved / count
    return metrics


def batch_metrics(logits: Tensor, positive: Tensor, candidate: Tensor) -> dict[str, Tensor]:
    """Four diagnostics, detached: categorical accuracy, positive and negative logits, logsumexp.

    Args:
        logits: (A, C) scores over the temperature.
        positive: (A, C) bool.
        candidate: (A, C) bool: the pairs that count.
    """
    logits, counts = logits.detach().float(), positive | candidate
    right = categorical_accuracy(logits, positive, candidate).float()
    return {
        "categorical_accuracy": mean_over(right, positive.any(dim=1)),
        "logits_positive": mean_over(logits, positive),
        "logits_negative": mean_over(logits, counts & ~positive),
        "logsumexp": mean_over(masked_logsumexp(logits, counts), counts.any(dim=1)),
    }


class OracleMetrics:
    """The critic against exact enumeration: AUROC and rank correlation per depth, AUPRC, calibration, sibling ranking.

    The rank correlation is Spearman's, of f with the probability that random play ends on the goal; all others are
    against reachability. ``sibling_ranking`` is the share of (reachable, unreachable) pairs of states of one problem
    and depth that are ranked correctly. Ties count half; it is NaN if no group of siblings has both kinds.
    """

    def __init__(self) -> None:
        self._batches: list[tuple[Tensor, ...]] = []

    def update(self, logits: Tensor, batch: CriticOracleBatch) -> None:
        """Adds N states with their logits (N,). Every rank passes all states."""
        logits = logits.detach()
        columns = logits.float().sigmoid(), batch.label, logits, batch.problem, batch.depth, batch.chance
        self._batches.append(columns)

    def predictions(self) -> tuple[Tensor, Tensor] | None:
        """Probabilities (N,) and labels (N,) bool, on the CPU, of the states since the last ``compute``; None: none."""
        if not self._batches:
            return None
        probability, label, *_ = self._states()
        return probability.cpu(), label.cpu()

    def compute(self) -> dict[str, Tensor]:
        """Metrics by name, without those that have no states; removes the states."""
        if not self._batches:
            return {}
        probability, label, logits, problem, depth, chance = self._states()
        self._batches.clear()
        wide, true = logits.double(), label.long()
        ordered = 0.5 + 0.5 * wide / (1 + wide.abs())  # in (0, 1), same order: a sigmoid makes large logits equal
        values: dict[str, Tensor] = {}
        for at in DEPTHS:
            if (rows := depth == at).any():
                values[f"auroc_depth{at}"] = binary_auroc(ordered[rows], true[rows])
                values[f"rank_correlation_depth{at}"] = spearman_corrcoef(wide[rows], chance[rows].double())
        ranked = auroc(logits.float().cpu(), label.cpu(), (problem * 65 + depth).cpu())
        return values | {
            "auprc": binary_average_precision(ordered, true),
            "ece": binary_calibration_error(probability, true, n_bins=BINS),
            "sibling_ranking": torch.tensor(float("nan") if ranked is None else ranked),
        }

    def _states(self) -> list[Tensor]:
        return [torch.cat(column) for column in zip(*self._batches, strict=True)]
