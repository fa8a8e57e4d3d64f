"""From a critic's logits to P(success | state) of the current policy: one curve per depth, and one for all depths.

States of different depth have different base rates — 0.2 of those one move in are reachable, 0.05 two moves in — so a
curve over all of them is right about none. A depth that was visited too seldom takes the curve of all depths together.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Float, Int
from torch import Tensor

Numbers = dict[str, Tensor]
"""A fitted curve: float64 vectors by name, nothing else."""


@runtime_checkable
class Curve(Protocol):
    """A kind of curve; what was fitted is kept outside of it, as numbers."""

    def fit(self, logits: Float[Tensor, " N"], share: Float[Tensor, " N"], visits: Float[Tensor, " N"]) -> Numbers:
        """The curve through N ≥ 1 states: their logits, success shares and weights."""
        ...

    def predict(self, numbers: Numbers, logits: Float[Tensor, " K"]) -> Float[Tensor, " K"]:
        """Probabilities under a fitted curve."""
        ...


@dataclass(frozen=True, kw_only=True)
class Examples:
    """N states of problems, and how the rollouts through each of them ended. All float64 but ``depth``."""

    logits: Float[Tensor, " N"]
    """The critic's, over its temperature."""
    depth: Int[Tensor, " N"]
    """As in ``StepCredit``: how many numbers are left."""
    share: Float[Tensor, " N"]
    """Of the rollouts through the state, those that the verifier accepts."""
    visits: Float[Tensor, " N"]
    """The rollouts through the state, each counted once."""

    def joined(self, *others: Examples) -> Examples:
        """These and those of ``others``."""
        every = (self, *others)
        return Examples(**{name: torch.cat([vars(one)[name] for one in every]) for name in vars(self)})

    def of(self, chosen: Tensor) -> Examples:
        """Those chosen by a mask or by rows."""
        return Examples(**{name: column[chosen] for name, column in vars(self).items()})


class Calibration:
    """Curves fitted to examples; before the first fit a state is worth σ(logit).

    Args:
        curve: isotonic or Platt's.
        least_visits: rollouts through states of a depth from which on the depth has a curve of its own.

    Raises:
        ValueError: ``least_visits`` is below 1.
    """

    def __init__(self, *, curve: Curve, least_visits: int) -> None:
        if least_visits < 1:
            raise ValueError(f"least_visits must be at least 1, got {least_visits}")
        self.curve = curve
        self.least_visits = least_visits
        self.pooled: Numbers | None = None
        self.by_depth: dict[int, Numbers] = {}

    @property
    def fitted(self) -> bool:
        return self.pooled is not None

    def fit(self, examples: Examples) -> None:
        """Replace the curves by those of these examples; without any, everything stays as it was."""
        if not len(examples.logits):
            return
        self.pooled = self._curve_of(examples)
        self.by_depth = {}
        for depth in examples.depth.unique().tolist():
            here = examples.of(examples.depth == depth)
            if here.visits.sum() >= self.least_visits:
                self.by_depth[depth] = self._curve_of(here)

    def __call__(self, logits: Float[Tensor, " K"], depth: Int[Tensor, " K"]) -> Float[Tensor, " K"]:
        """P(success | state) of K states."""
        if self.pooled is None:
            return logits.double().sigmoid()
        found = self.curve.predict(self.pooled, logits.double())
        for at, numbers in self.by_depth.items():
            here = depth == at
            found[here] = self.curve.predict(numbers, logits[here].double())
        return found

    def state_dict(self) -> dict[str, Any]:
        """The fitted curves as tensors: no object that a loader would have to trust."""
        return {"pooled": self.pooled or {}, "by_depth": dict(self.by_depth)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.pooled = dict(state["pooled"]) or None
        self.by_depth = {depth: dict(numbers) for depth, numbers in state["by_depth"].items()}

    def _curve_of(self, examples: Examples) -> Numbers:
        return self.curve.fit(examples.logits, examples.share, examples.visits)
