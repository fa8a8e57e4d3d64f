"""How often what was given a probability is true, by bins of equal width: what a reliability diagram shows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ReliabilityBins:
    """Of each bin that holds anything, the lowest first."""

    predicted: Float[Tensor, " bins"]
    """The mean probability."""
    true: Float[Tensor, " bins"]
    """The share that is true."""
    count: Int[Tensor, " bins"]

    @property
    def expected_error(self) -> float:
        """The expected calibration error: the mean distance of the two, by count."""
        return float(((self.predicted - self.true).abs() * self.count).sum() / self.count.sum())


def reliability_bins(probability: Float[Tensor, " N"], label: Bool[Tensor, " N"], *, bins: int) -> ReliabilityBins:
    """Sort N predictions into ``bins`` bins; one on a border is in the upper bin, 1 in the last.

    Raises:
        ValueError: for no predictions, for ``bins`` below 1, or for numbers that are no probabilities.
    """
    if bins < 1:
        raise ValueError(f"bins must be at least 1, got {bins}")
    if not len(probability):
        raise ValueError("there are no predictions to judge")
    if not bool(((probability >= 0) & (probability <= 1)).all()):
        raise ValueError("probabilities must lie in [0, 1]")
    place = (probability * bins).long().clamp(0, bins - 1)
    count = torch.bincount(place, minlength=bins)
    predicted = torch.bincount(place, weights=probability.double(), minlength=bins)
    true = torch.bincount(place, weights=label.double(), minlength=bins)
    held = count > 0
    return ReliabilityBins(predicted=predicted[held] / count[held], true=true[held] / count[held], count=count[held])
