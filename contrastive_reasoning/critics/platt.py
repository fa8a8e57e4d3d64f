"""Platt's calibration:  P(success) = σ(a · logit + b), fitted by scikit-learn's logistic regression without a penalty.

The targets are Platt's own, (N₊ + 1)/(N₊ + 2) for a success and 1/(N₋ + 2) for a failure: with them the fit is finite
where logits separate the two kinds, and where there was only one kind (Platt 1999, "Probabilistic outputs for support
vector machines", section 2.2).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.critics.calibration import Numbers


@dataclass(frozen=True, kw_only=True)
class Platt:
    def fit(self, logits: Float[Tensor, " N"], share: Float[Tensor, " N"], visits: Float[Tensor, " N"]) -> Numbers:
        """a and b."""
        from sklearn.linear_model import LogisticRegression  # takes a second to import

        target = soft_targets(share.double(), visits.double())
        weight = torch.cat([visits * target, visits * (1 - target)]).double().numpy()
        success = np.repeat([1, 0], len(logits))
        line = LogisticRegression(C=np.inf, solver="lbfgs", tol=1e-10, max_iter=1000)
        line.fit(logits.double().repeat(2).numpy()[:, None], success, sample_weight=weight)
        return {"slope": _number(line.coef_), "intercept": _number(line.intercept_)}

    def predict(self, numbers: Numbers, logits: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
        return (numbers["slope"] * logits.double() + numbers["intercept"]).sigmoid()


def soft_targets(share: Float[Tensor, " N"], visits: Float[Tensor, " N"]) -> Float[Tensor, " N"]:
    """Each state's share of successes with Platt's targets in place of 1 and 0."""
    successes = (share * visits).sum()
    failures = visits.sum() - successes
    return share * (successes + 1) / (successes + 2) + (1 - share) / (failures + 2)


def _number(value: object) -> Tensor:
    return torch.from_numpy(np.asarray(value, dtype=np.float64).reshape(1).copy())
