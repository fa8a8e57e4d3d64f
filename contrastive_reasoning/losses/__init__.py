"""Contrastive losses: pure functions of logits and pair masks, unreduced, and their class forms for configuration."""

from contrastive_reasoning.losses.accuracy import categorical_accuracy
from contrastive_reasoning.losses.base import ContrastiveLoss
from contrastive_reasoning.losses.binary_nce import BinaryNCE, binary_nce
from contrastive_reasoning.losses.binary_nce_balanced import BalancedBinaryNCE, binary_nce_balanced
from contrastive_reasoning.losses.info_nce import InfoNCE, info_nce
from contrastive_reasoning.losses.info_nce_backward import BackwardInfoNCE, info_nce_backward
from contrastive_reasoning.losses.info_nce_symmetric import SymmetricInfoNCE, info_nce_symmetric
from contrastive_reasoning.losses.penalty import WithPenalty, logsumexp_penalty
from contrastive_reasoning.losses.preference import goal_contrast, preference_loss
from contrastive_reasoning.losses.reduce import mean_over
from contrastive_reasoning.losses.similarity import (
    Similarity,
    cosine,
    dot,
    neg_l2,
    neg_l2_squared,
    neg_unit_l2,
    of_pairs,
    similarities,
)
from contrastive_reasoning.losses.soft_nearest_neighbour import SoftNearestNeighbour, soft_nearest_neighbour
from contrastive_reasoning.losses.supcon import SupCon, supcon
from contrastive_reasoning.losses.supcon_in import SupConIn, supcon_in

VERSION = 1
"""Increment it when the same configuration would give another result: finished stages are then computed anew."""

__all__ = [
    "BackwardInfoNCE",
    "BalancedBinaryNCE",
    "BinaryNCE",
    "ContrastiveLoss",
    "InfoNCE",
    "Similarity",
    "SoftNearestNeighbour",
    "SupCon",
    "SupConIn",
    "SymmetricInfoNCE",
    "WithPenalty",
    "binary_nce",
    "binary_nce_balanced",
    "categorical_accuracy",
    "cosine",
    "dot",
    "goal_contrast",
    "info_nce",
    "info_nce_backward",
    "info_nce_symmetric",
    "logsumexp_penalty",
    "mean_over",
    "neg_l2",
    "neg_l2_squared",
    "neg_unit_l2",
    "of_pairs",
    "preference_loss",
    "similarities",
    "soft_nearest_neighbour",
    "supcon",
    "supcon_in",
]
