"""REINFORCE: the advantage pushes each token's log-probability, and nothing is clipped."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.objectives import Aggregation, ObjectiveInputs, ObjectiveOutputs
from contrastive_reasoning.objectives.base import aggregate


@dataclass(frozen=True, kw_only=True)
class Reinforce:
    """loss = − Σ w A log π over the completion tokens, with the aggregation's weights w."""

    aggregation: Aggregation

    def weights(self, mask: Bool[Tensor, "B T"], *, rows: float, tokens: float) -> Float[Tensor, "B T"]:
        return self.aggregation.weights(mask, rows=rows, tokens=tokens)

    def __call__(self, inputs: ObjectiveInputs) -> ObjectiveOutputs:
        losses = torch.where(inputs.mask, -inputs.advantages * inputs.log_probs, 0.0)
        return ObjectiveOutputs(loss=aggregate(losses, inputs, self.aggregation))
