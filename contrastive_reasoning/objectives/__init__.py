"""Policy objectives: the losses of an update, computed per token and independent of a trainer."""

from contrastive_reasoning.objectives.base import (
    Aggregation,
    ConstantLength,
    Objective,
    ObjectiveInputs,
    ObjectiveOutputs,
    SeqMeanTokenMean,
    SeqMeanTokenSum,
    TokenMean,
    needs_full_kl,
)
from contrastive_reasoning.objectives.cispo import CISPO
from contrastive_reasoning.objectives.grpo import DAPO, GRPO, DrGRPO
from contrastive_reasoning.objectives.kl import K1, K2, K3, KL, AbsoluteKL, FullKL
from contrastive_reasoning.objectives.ratio import Correction, NoCorrection, SequenceCorrection, TokenCorrection
from contrastive_reasoning.objectives.sequence import GMPO, GSPO
