"""Advantages: rewards relative to the group, per rollout and per step, assigned to the completion's tokens."""

from typing import TYPE_CHECKING

from contrastive_reasoning.lazy import lazy_getattr

if TYPE_CHECKING:
    from contrastive_reasoning.advantages.base import Advantage as Advantage, StatefulAdvantage as StatefulAdvantage
    from contrastive_reasoning.advantages.group_relative import (
        GroupRelative as GroupRelative,
        LeaveOneOut as LeaveOneOut,
        MeanCentred as MeanCentred,
    )
    from contrastive_reasoning.advantages.grpo_lambda import GRPOLambda as GRPOLambda
    from contrastive_reasoning.advantages.potential import Potential as Potential
    from contrastive_reasoning.advantages.process import Process as Process
    from contrastive_reasoning.advantages.subsampled import Subsampled as Subsampled
    from contrastive_reasoning.advantages.survival import Survival as Survival
    from contrastive_reasoning.advantages.trust_gate import TrustGate as TrustGate
    from contrastive_reasoning.advantages.vineppo import VinePPO as VinePPO

__getattr__ = lazy_getattr(__name__)
