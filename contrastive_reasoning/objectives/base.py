"""What every policy objective takes and gives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class ObjectiveInputs:
    """Per-token quantities of B rollouts; what lies outside ``mask`` is ignored, whatever it holds."""

    log_probs: Float[Tensor, "B T"]
    """log π of each completion token, with gradient."""
    old_log_probs: Float[Tensor, "B T"]
    """The same under the policy that sampled."""
    ref_log_probs: Float[Tensor, "B T"] | None
    """The same under the reference; None where no reference is loaded."""
    advantages: Float[Tensor, "B T"]
    mask: Bool[Tensor, "B T"]
    weights: Float[Tensor, "B T"] | None = None
    """Each token's weight in the loss, from the aggregation over the *whole* update, so that the split into
    micro-batches cannot change the gradient; None: these rows are the whole update."""
    full_kl: Float[Tensor, "B T"] | None = None
    """KL(π ‖ reference) over the whole vocabulary at each token, with gradient; only ``FullKL`` reads it."""
    tokens: float | None = None
    """Completion tokens of the whole update, so that metrics add up over micro-batches; None: those of ``mask``."""


@dataclass(frozen=True, kw_only=True)
class ObjectiveOutputs:
    loss: Float[Tensor, ""]
    metrics: Mapping[str, Float[Tensor, ""]] = field(default_factory=dict)
    """Detached diagnostics (``clip_fraction``, ``kl``, ``ratio_mean``), made to be joined by ``metrics.joined``."""


@runtime_checkable
class Objective(Protocol):
    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs: ...

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        """Each token's weight in the loss of an update of ``rows`` rollouts and ``tokens`` tokens."""
        ...
