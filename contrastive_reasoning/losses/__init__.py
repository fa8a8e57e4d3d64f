"""Contrastive losses: pure, unreduced functions of logits and pair masks, and class forms for the configuration."""

from contrastive_reasoning.losses.base import ContrastiveLoss
from contrastive_reasoning.losses.binary_nce import BalancedBinaryNCE, BinaryNCE, binary_nce, binary_nce_balanced
from contrastive_reasoning.losses.info_nce import (
    BackwardInfoNCE,
    InfoNCE,
    SymmetricInfoNCE,
    info_nce,
    info_nce_backward,
    info_nce_pairs,
    info_nce_symmetric,
)
from contrastive_reasoning.losses.masked import categorical_accuracy, mean_over
from contrastive_reasoning.losses.penalty import WithPenalty, logsumexp_penalty
from contrastive_reasoning.losses.preference import goal_contrast, preference_loss
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
from contrastive_reasoning.losses.supcon import (
    SoftNearestNeighbour,
    SupCon,
    SupConIn,
    soft_nearest_neighbour,
    supcon,
    supcon_in,
)
