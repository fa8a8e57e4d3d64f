"""Policy objectives: the losses of an update, computed per token and independent of a trainer."""

from typing import TYPE_CHECKING

from contrastive_reasoning.lazy import lazy_getattr

if TYPE_CHECKING:
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
    from contrastive_reasoning.objectives.dapo import DAPO
    from contrastive_reasoning.objectives.dr_grpo import DrGRPO
    from contrastive_reasoning.objectives.gmpo import GMPO
    from contrastive_reasoning.objectives.grpo import GRPO
    from contrastive_reasoning.objectives.gspo import GSPO
    from contrastive_reasoning.objectives.kl import K1, K2, K3, KL, AbsoluteKL, FullKL
    from contrastive_reasoning.objectives.ratio import Correction, NoCorrection, SequenceCorrection, TokenCorrection

__getattr__ = lazy_getattr(__name__)
