"""Policy objectives: what the gradient of an update is made of, per token and without a trainer."""

from contrastive_reasoning.objectives.aggregate import (
    Aggregation,
    ConstantLength,
    SeqMeanTokenMean,
    SeqMeanTokenSum,
    TokenMean,
)
from contrastive_reasoning.objectives.base import Objective, ObjectiveInputs, ObjectiveOutputs
from contrastive_reasoning.objectives.grpo import GRPO
from contrastive_reasoning.objectives.kl import K1, K2, K3, KL, AbsoluteKL

VERSION = 1

__all__ = [
    "GRPO",
    "K1",
    "K2",
    "K3",
    "KL",
    "AbsoluteKL",
    "Aggregation",
    "ConstantLength",
    "Objective",
    "ObjectiveInputs",
    "ObjectiveOutputs",
    "SeqMeanTokenMean",
    "SeqMeanTokenSum",
    "TokenMean",
]
