"""Calibration of a critic's logits to P(success | state) of the current policy, and measures of calibration.

States of different depths have different base rates: after one move 0.2 of them are reachable, after two 0.05. A
curve over all depths fits none of them, so each depth has its own. A depth with too few visits uses the curve over all
depths.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits

from contrastive_reasoning.ranges import at_least

Numbers = dict[str, Tensor]
"""A fitted curve: float64 vectors by name."""


@runtime_checkable
class Curve(Protocol):
    """A kind of curve; the caller holds the fitted parameters as ``Numbers``."""

    def fit(self, logits: Float[Tensor, " N"], share: Float[Tensor, " N"], visits: Float[Tensor, " N"]) -> Numbers:
        """Fits the curve to N ≥ 1 states: their logits, success shares and weights."""
        ...

    def predict(self, numbers: Numbers, logits: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
        """Returns probabilities under a fitted curve."""
        ...


@dataclass(frozen=True, kw_only=True)
class Examples:
    """N states of problems and the results of the rollouts through them. All float64 except ``depth``."""

    logits: Float[Tensor, " N"]
    """The critic's values, divided by its temperature."""
    depth: Int[Tensor, " N"]
    """As in ``StepCredit``: how many numbers are left."""
    share: Float[Tensor, " N"]
    """The share of the rollouts through the state that the verifier accepts."""
    visits: Float[Tensor, " N"]
    """The number of rollouts through the state, each counted once."""

    def of(self, chosen: Tensor) -> Examples:
        """Returns the examples that a mask or row indices select."""
        return Examples(**{name: column[chosen] for name, column in vars(self).items()})


def join_examples(parts: Sequence[Examples]) -> Examples:
    """Concatenates the examples of at least one part, in order."""
    return Examples(**{name: torch.cat([vars(part)[name] for part in parts]) for name in vars(parts[0])})


class Calibration:
    """Curves fitted to examples; before the first fit the probability of a state is σ(logit).

    A depth has its own curve if at least ``least_visits`` rollouts go through its states.

    Raises ValueError: ``least_visits`` is below 1.
    """

    def __init__(self, *, curve: Curve, least_visits: int) -> None:
        at_least(1, least_visits=least_visits)
        self.curve = curve
        self.least_visits = least_visits
        self.pooled: Numbers | None = None
        self.by_depth: dict[int, Numbers] = {}

    @property
    def fitted(self) -> bool:
        return self.pooled is not None

    def fit(self, examples: Examples) -> None:
        """Replaces the curves by those of these examples; without examples the curves stay."""
        if not len(examples.logits):
            return
        self.pooled = self.curve.fit(examples.logits, examples.share, examples.visits)
        self.by_depth = {}
        for depth in examples.depth.unique().tolist():
            here = examples.of(examples.depth == depth)
            if here.visits.sum() >= self.least_visits:
                self.by_depth[depth] = self.curve.fit(here.logits, here.share, here.visits)

    def __call__(self, logits: Float[Tensor, " K"], depth: Int[Tensor, " K"]) -> Float[Tensor, " K"]:
        """Returns P(success | state) of K states."""
        if self.pooled is None:
            return logits.double().sigmoid()
        found = self.curve.predict(self.pooled, logits.double())
        for at, numbers in self.by_depth.items():
            here = depth == at
            found[here] = self.curve.predict(numbers, logits[here].double())
        return found

    def state_dict(self) -> dict[str, Any]:
        """Returns the fitted curves as tensors, without objects that need a trusted loader."""
        return {"pooled": self.pooled or {}, "by_depth": dict(self.by_depth)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.pooled = dict(state["pooled"]) or None
        self.by_depth = {depth: dict(numbers) for depth, numbers in state["by_depth"].items()}


@dataclass(frozen=True, kw_only=True)
class Isotonic:
    """The non-decreasing curve through the success shares with the least squared error, by scikit-learn.

    It is linear between its knots and constant beyond the first and the last. The only assumption is that a higher
    logit is not worse. For a critic without information the curve is constant.
    """

    def fit(self, logits: Float[Tensor, " N"], share: Float[Tensor, " N"], visits: Float[Tensor, " N"]) -> Numbers:
        """Returns the knots: increasing logits, and the probability at each."""
        from sklearn.isotonic import IsotonicRegression  # takes a second to import

        curve = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=True, out_of_bounds="clip")
        curve.fit(logits.double().numpy(), share.double().numpy(), sample_weight=visits.double().numpy())
        return {"logit": _column(curve.X_thresholds_), "probability": _column(curve.y_thresholds_)}

    def predict(self, numbers: Numbers, logits: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
        knots = numbers["logit"].numpy(), numbers["probability"].numpy()
        return _column(np.interp(logits.double().numpy(), *knots))


@dataclass(frozen=True, kw_only=True)
class Platt:
    """P(success) = σ(a · logit + b), fitted by scikit-learn's logistic regression without a penalty.

    The targets are Platt's own: (N₊ + 1)/(N₊ + 2) for a success and 1/(N₋ + 2) for a failure. With them the fit is
    finite even if the logits separate the two kinds or there is only one kind (Platt 1999, "Probabilistic outputs for
    support vector machines", section 2.2).
    """

    def fit(self, logits: Float[Tensor, " N"], share: Float[Tensor, " N"], visits: Float[Tensor, " N"]) -> Numbers:
        """Returns a and b as ``slope`` and ``intercept``."""
        from sklearn.linear_model import LogisticRegression  # takes a second to import

        target = soft_targets(share.double(), visits.double())
        weight = torch.cat([visits * target, visits * (1 - target)]).double().numpy()
        # each state as a success and as a failure: scikit-learn takes no shares and raises for a single class
        success = np.repeat([1, 0], len(logits))
        line = LogisticRegression(C=np.inf, solver="lbfgs", tol=1e-10, max_iter=1000)
        line.fit(logits.double().repeat(2).numpy()[:, None], success, sample_weight=weight)
        return {"slope": _column(line.coef_), "intercept": _column(line.intercept_)}

    def predict(self, numbers: Numbers, logits: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
        return (numbers["slope"] * logits.double() + numbers["intercept"]).sigmoid()


def _column(values: Any) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float64).reshape(-1).copy())


def soft_targets(share: Float[Tensor, " N"], visits: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Returns each state's share of successes with Platt's targets in place of 1 and 0."""
    successes = (share * visits).sum()
    failures = visits.sum() - successes
    return share * (successes + 1) / (successes + 2) + (1 - share) / (failures + 2)


def expected_calibration_error(
    predicted: Float[Tensor, " N"], share: Float[Tensor, " N"], visits: Float[Tensor, " N"], *, bins: int
) -> float:
    """Returns Σ_b w_b |mean predicted − mean share| over ``bins`` bins of equal width; w_b is the bin's part of visits.

    Args:
        predicted: probabilities, at least one.
        share: the share of successes among the visits.
        visits: the weight of each.
    """
    at = (predicted * bins).long().clamp(0, bins - 1)
    gaps = torch.zeros(bins, dtype=torch.float64).index_add(0, at, (visits * (predicted - share)).double())
    return (gaps.abs().sum() / visits.sum()).item()


def brier_score(predicted: Float[Tensor, " N"], share: Float[Tensor, " N"], visits: Float[Tensor, " N"]) -> float:
    """Returns the mean over the visits of (p − success)², with success 0 or 1."""
    squared = share * (1 - predicted).square() + (1 - share) * predicted.square()
    return ((visits * squared).sum() / visits.sum()).item()


def cross_entropy(
    logits: Float[Tensor, " N"], share: Float[Tensor, " N"], visits: Float[Tensor, " N"]
) -> Float[Tensor, ""]:
    """Returns the mean over the visits of −log of the probability, σ(logit), that a visit ended as it did."""
    losses = binary_cross_entropy_with_logits(logits, share, reduction="none")
    return (visits * losses).sum() / visits.sum()


@dataclass(frozen=True, kw_only=True)
class ReliabilityBins:
    """Predicted probability and true share in bins of equal width, with one entry per bin that is not empty."""

    predicted: Float[Tensor, " bins"]
    """The mean probability."""
    true: Float[Tensor, " bins"]
    """The share that is true."""
    count: Int[Tensor, " bins"]

    @property
    def expected_error(self) -> float:
        """The expected calibration error: the mean distance of the two, weighted by count."""
        return float(((self.predicted - self.true).abs() * self.count).sum() / self.count.sum())


def reliability_bins(probability: Float[Tensor, " N"], label: Bool[Tensor, " N"], *, bins: int) -> ReliabilityBins:
    """Sorts N predictions into ``bins`` bins; a value on a border is in the upper bin, 1 in the last.

    Raises ValueError without predictions, for ``bins`` below 1, or for numbers outside [0, 1].
    """
    at_least(1, bins=bins)
    if not len(probability):
        raise ValueError("there are no predictions to evaluate")
    if not bool(((probability >= 0) & (probability <= 1)).all()):
        raise ValueError("probabilities must lie in [0, 1]")
    place = (probability * bins).long().clamp(0, bins - 1)
    count = torch.bincount(place, minlength=bins)
    predicted = torch.bincount(place, weights=probability.double(), minlength=bins)
    true = torch.bincount(place, weights=label.double(), minlength=bins)
    held = count > 0
    return ReliabilityBins(predicted=predicted[held] / count[held], true=true[held] / count[held], count=count[held])
