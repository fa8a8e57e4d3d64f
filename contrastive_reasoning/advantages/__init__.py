"""Advantages: rewards relative to the group, per rollout and per step, assigned to the completion's tokens."""

from typing import TYPE_CHECKING

from contrastive_reasoning.lazy import lazy_getattr

if TYPE_CHECKING:
    from contrastive_reasoning.advantages.base import Advantage, StatefulAdvantage
    from contrastive_reasoning.advantages.group_relative import GroupRelative, LeaveOneOut, MeanCentred
    from contrastive_reasoning.advantages.grpo_lambda import GRPOLambda
    from contrastive_reasoning.advantages.potential import Potential
    from contrastive_reasoning.advantages.process import Process
    from contrastive_reasoning.advantages.subsampled import Subsampled
    from contrastive_reasoning.advantages.survival import Survival
    from contrastive_reasoning.advantages.trust_gate import TrustGate
    from contrastive_reasoning.advantages.vineppo import VinePPO

__getattr__ = lazy_getattr(__name__)
