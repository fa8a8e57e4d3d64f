"""Isotonic calibration: the rising curve through the success shares with the least squared error, by scikit-learn.

It assumes no shape but that a higher logit is not worse; of a critic that knows nothing it makes a constant.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.critics.calibration import Numbers


@dataclass(frozen=True, kw_only=True)
class Isotonic:
    """Straight between its knots, level beyond the first and the last."""

    def fit(self, logits: Float[Tensor, " N"], share: Float[Tensor, " N"], visits: Float[Tensor, " N"]) -> Numbers:
        """The knots: logits, rising, and the probability at each."""
        from sklearn.isotonic import IsotonicRegression  # takes a second to import

        curve = IsotonicRegression(y_min=0.0, y_max=1.0, increasing=True, out_of_bounds="clip")
        curve.fit(logits.double().numpy(), share.double().numpy(), sample_weight=visits.double().numpy())
        return {"logit": _vector(curve.X_thresholds_), "probability": _vector(curve.y_thresholds_)}

    def predict(self, numbers: Numbers, logits: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
        knots = numbers["logit"].numpy(), numbers["probability"].numpy()
        return _vector(np.interp(logits.double().numpy(), *knots))


def _vector(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float64).copy())
