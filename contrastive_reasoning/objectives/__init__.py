"""Policy objectives: the losses of an update, computed per token and independent of a trainer."""

from contrastive_reasoning.objectives.base import (
    Aggregation as Aggregation,
    ConstantLength as ConstantLength,
    Objective as Objective,
    ObjectiveInputs as ObjectiveInputs,
    ObjectiveOutputs as ObjectiveOutputs,
    SeqMeanTokenMean as SeqMeanTokenMean,
    SeqMeanTokenSum as SeqMeanTokenSum,
    TokenMean as TokenMean,
    needs_full_kl as needs_full_kl,
)
from contrastive_reasoning.objectives.cispo import CISPO as CISPO
from contrastive_reasoning.objectives.grpo import DAPO as DAPO, GRPO as GRPO, DrGRPO as DrGRPO
from contrastive_reasoning.objectives.kl import (
    K1 as K1,
    K2 as K2,
    K3 as K3,
    KL as KL,
    AbsoluteKL as AbsoluteKL,
    FullKL as FullKL,
)
from contrastive_reasoning.objectives.ratio import (
    Correction as Correction,
    NoCorrection as NoCorrection,
    SequenceCorrection as SequenceCorrection,
    TokenCorrection as TokenCorrection,
)
from contrastive_reasoning.objectives.sequence import GMPO as GMPO, GSPO as GSPO
