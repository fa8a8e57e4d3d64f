"""Per-token estimators of KL(π ‖ reference) from the sampled token's log-probs, d = log π − log π_ref:

        k1 = d        k2 = d²/2        k3 = e^{−d} + d − 1        abs = |d|

k1 is unbiased but its gradient is not that of the KL; k2 has the KL's gradient on policy; k3 is unbiased, never
negative and of low variance (http://joschu.net/blog/kl-approx.html). ``FullKL`` is exact: it sums over the vocabulary.
An objective has a KL term only with both an estimator and a reference.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from jaxtyping import Float
from torch import Tensor

from contrastive_reasoning.ranges import above


@runtime_checkable
class KL(Protocol):
    def __call__(
        self, log_probs: Float[Tensor, "B T"], ref_log_probs: Float[Tensor, "B T"]
    ) -> Float[Tensor, "B T"]: ...


@dataclass(frozen=True, kw_only=True)
class K1:
    def __call__(self, log_probs: Float[Tensor, "B T"], ref_log_probs: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        return log_probs - ref_log_probs


@dataclass(frozen=True, kw_only=True)
class K2:
    def __call__(self, log_probs: Float[Tensor, "B T"], ref_log_probs: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        return (log_probs - ref_log_probs).square() / 2


@dataclass(frozen=True, kw_only=True)
class K3:
    """The low-variance estimator with bounds, so that one token with a large log-ratio cannot dominate a batch."""

    max_log_ratio: float
    """Upper bound of |d| before the exponential."""
    max_value: float
    """Upper bound of the estimate; beyond it the gradient is 0."""

    def __post_init__(self) -> None:
        above(0, max_log_ratio=self.max_log_ratio, max_value=self.max_value)

    def __call__(self, log_probs: Float[Tensor, "B T"], ref_log_probs: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        log_ratio = (ref_log_probs - log_probs).clamp(-self.max_log_ratio, self.max_log_ratio)
        return (log_ratio.exp() - log_ratio - 1).clamp(-self.max_value, self.max_value)


@dataclass(frozen=True, kw_only=True)
class AbsoluteKL:
    def __call__(self, log_probs: Float[Tensor, "B T"], ref_log_probs: Float[Tensor, "B T"]) -> Float[Tensor, "B T"]:
        return (log_probs - ref_log_probs).abs()


@dataclass(frozen=True, kw_only=True)
class FullKL:
    """Σ_v π(v) (log π(v) − log π_ref(v)) at each token, without sampling noise and with the KL's own gradient.

    The log-probs of the sampled tokens do not suffice: ``policies.full_kl`` computes it from hidden states, and it is
    passed as ``ObjectiveInputs.full_kl``.
    """
