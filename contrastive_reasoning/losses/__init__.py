"""Contrastive losses: pure, unreduced functions of logits and pair masks, and class forms for the configuration."""

from contrastive_reasoning.losses.base import ContrastiveLoss as ContrastiveLoss
from contrastive_reasoning.losses.binary_nce import (
    BalancedBinaryNCE as BalancedBinaryNCE,
    BinaryNCE as BinaryNCE,
    binary_nce as binary_nce,
    binary_nce_balanced as binary_nce_balanced,
)
from contrastive_reasoning.losses.info_nce import (
    BackwardInfoNCE as BackwardInfoNCE,
    InfoNCE as InfoNCE,
    SymmetricInfoNCE as SymmetricInfoNCE,
    info_nce as info_nce,
    info_nce_backward as info_nce_backward,
    info_nce_pairs as info_nce_pairs,
    info_nce_symmetric as info_nce_symmetric,
)
from contrastive_reasoning.losses.masked import categorical_accuracy as categorical_accuracy, mean_over as mean_over
from contrastive_reasoning.losses.penalty import WithPenalty as WithPenalty, logsumexp_penalty as logsumexp_penalty
from contrastive_reasoning.losses.preference import goal_contrast as goal_contrast, preference_loss as preference_loss
from contrastive_reasoning.losses.similarity import (
    Similarity as Similarity,
    cosine as cosine,
    dot as dot,
    neg_l2 as neg_l2,
    neg_l2_squared as neg_l2_squared,
    neg_unit_l2 as neg_unit_l2,
    of_pairs as of_pairs,
    similarities as similarities,
)
from contrastive_reasoning.losses.supcon import (
    SoftNearestNeighbour as SoftNearestNeighbour,
    SupCon as SupCon,
    SupConIn as SupConIn,
    soft_nearest_neighbour as soft_nearest_neighbour,
    supcon as supcon,
    supcon_in as supcon_in,
)
