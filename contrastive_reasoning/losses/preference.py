"""The two terms of a reward model with a goal-conditioned representation, arXiv:2407.13887:  L = L_R + λ L_C.

L_R = −log σ(r(x, y_w) − r(x, y_l))
L_C = −[ log σ(f(x, y₀…t, y_g⁺)) + log(1 − σ(f(x, y₀…t, y_g⁻))) ]      (printed without the minus)
"""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import logsigmoid


def preference_loss(chosen: Float[Tensor, " B"], rejected: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Returns L_R per pair, r(x, y_w) and r(x, y_l): the chosen completion should have more reward (Bradley–Terry)."""
    return -logsigmoid(chosen - rejected)


def goal_contrast(reached: Float[Tensor, " B"], missed: Float[Tensor, " B"]) -> Float[Tensor, " B"]:
    """Returns L_C per prefix: it should point to its own completion and away from another one of the same prompt."""
    return -(logsigmoid(reached) + logsigmoid(-missed))
