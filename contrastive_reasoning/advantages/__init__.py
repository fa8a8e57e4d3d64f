"""Advantages: rewards relative to the group, per rollout and per step, on the tokens of the completion."""

from contrastive_reasoning.advantages.base import Advantage, StatefulAdvantage
from contrastive_reasoning.advantages.group_relative import GroupRelative
from contrastive_reasoning.advantages.leave_one_out import LeaveOneOut
from contrastive_reasoning.advantages.mean_centred import MeanCentred
from contrastive_reasoning.advantages.process import Process
from contrastive_reasoning.advantages.trust_gate import TrustGate

VERSION = 2

__all__ = ["Advantage", "GroupRelative", "LeaveOneOut", "MeanCentred", "Process", "StatefulAdvantage", "TrustGate"]
