"""How good a critic is: against the batch it trains on, and against the exact oracle on held-out states."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torchmetrics import Metric
from torchmetrics.classification import BinaryAUROC, BinaryAveragePrecision, BinaryCalibrationError
from torchmetrics.utilities import dim_zero_cat

from contrastive_reasoning.critics import CriticOracleBatch
from contrastive_reasoning.losses import categorical_accuracy, mean_over
from contrastive_reasoning.losses.masked import masked_logsumexp

DEPTHS = (1, 2)
"""Moves after which the held-out states are judged."""
BINS = 15
"""Of the calibration error."""


def batch_metrics(logits: Tensor, positive: Tensor, candidate: Tensor) -> dict[str, Tensor]:
    """The four numbers worth watching, detached: categorical accuracy, positive and negative logits, logsumexp.

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


def sibling_ranking(scores: Tensor, label: Tensor, group: Tensor) -> Tensor:
    """Share of (reachable, unreachable) pairs within a group that are ranked right; ties count half.

    Args:
        scores: (N,) critic values.
        label: (N,) bool, reachable.
        group: (N,) int, equal for siblings.

    Returns:
        A scalar in [0, 1]; NaN where no group has both kinds.
    """
    order = group.argsort(stable=True)
    sizes = group[order].unique_consecutive(return_counts=True)[1].tolist()
    right, pairs = 0.0, 0
    for values, reached in zip(scores[order].split(sizes), label[order].split(sizes), strict=True):
        margin = values[reached][:, None] - values[~reached][None, :]
        right += float((margin > 0).sum()) + 0.5 * float((margin == 0).sum())
        pairs += margin.numel()
    return torch.tensor(right / pairs if pairs else float("nan"))


class SiblingRanking(Metric):
    """``sibling_ranking`` over all batches, siblings being the states of one problem and depth."""

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        for name in ("scores", "label", "group"):
            self.add_state(name, default=[], dist_reduce_fx="cat")

    def update(self, scores: Tensor, label: Tensor, problem: Tensor, depth: Tensor) -> None:
        self.scores.append(scores.detach().float())  # pyright: ignore
        self.label.append(label)  # pyright: ignore
        self.group.append(problem * (1 + 64) + depth)  # pyright: ignore

    def compute(self) -> Tensor:
        return sibling_ranking(*(dim_zero_cat(getattr(self, name)) for name in ("scores", "label", "group")))


class OracleMetrics(nn.Module):
    """The critic against exact reachability: AUROC per depth, AUPRC, calibration error, sibling ranking."""

    def __init__(self) -> None:
        super().__init__()
        self.auroc = nn.ModuleDict({f"auroc_depth{depth}": BinaryAUROC() for depth in DEPTHS})
        self.auprc = BinaryAveragePrecision()
        self.ece = BinaryCalibrationError(n_bins=BINS)
        self.ranking = SiblingRanking()

    def update(self, logits: Tensor, batch: CriticOracleBatch) -> None:
        """Add N states with their logits (N,)."""
        ordered, label = _squashed(logits), batch.label.long()
        for depth, auroc in zip(DEPTHS, self.auroc.values(), strict=True):
            at_depth = batch.depth == depth
            if at_depth.any():
                auroc.update(ordered[at_depth], label[at_depth])  # pyright: ignore
        self.auprc.update(ordered, label)
        self.ece.update(logits.detach().float().sigmoid(), label)
        self.ranking.update(logits, batch.label, batch.problem, batch.depth)

    def predictions(self) -> tuple[Tensor, Tensor] | None:
        """Probabilities (N,) and labels (N,) bool of the states added since the last ``compute``, to be drawn: on the
        CPU; None for none.
        """
        if not self.ece.update_called:
            return None
        probability, label = (dim_zero_cat(getattr(self.ece, name)) for name in ("confidences", "accuracies"))
        return probability.float().cpu(), label.bool().cpu()

    def compute(self) -> dict[str, Tensor]:
        """Every number by its name; what has seen no state is absent. Starts anew afterwards."""
        named = {**self.auroc, "auprc": self.auprc, "ece": self.ece, "sibling_ranking": self.ranking}
        values = {name: metric.compute() for name, metric in named.items() if metric.update_called}  # pyright: ignore
        for metric in named.values():
            metric.reset()  # pyright: ignore
        return values


def _squashed(logits: Tensor) -> Tensor:
    """Into (0, 1) without losing the order: a sigmoid makes all large logits equal."""
    wide = logits.detach().double()
    return 0.5 + 0.5 * wide / (1 + wide.abs())
