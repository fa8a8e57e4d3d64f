"""Rewards: what a rollout batch is worth, every source by its own name, per rollout and per step."""

from contrastive_reasoning.rewards.base import Credit, Reward, StepCredit
from contrastive_reasoning.rewards.calibrated import CalibratedReward
from contrastive_reasoning.rewards.clipo import CLIPOReward
from contrastive_reasoning.rewards.constant_value import ConstantValueReward
from contrastive_reasoning.rewards.critic import CriticReward
from contrastive_reasoning.rewards.format import FormatReward
from contrastive_reasoning.rewards.function import FunctionReward
from contrastive_reasoning.rewards.function_verifier import FunctionVerifier
from contrastive_reasoning.rewards.game_level import GameLevelReward
from contrastive_reasoning.rewards.head import LinearHead, MLPHead
from contrastive_reasoning.rewards.monte_carlo import MonteCarloReward
from contrastive_reasoning.rewards.oracle import OracleReward
from contrastive_reasoning.rewards.oracle_flipped import FlippedOracleReward
from contrastive_reasoning.rewards.overlong import OverlongReward
from contrastive_reasoning.rewards.perfect_move import PerfectMoveReward
from contrastive_reasoning.rewards.random_potential import RandomPotentialReward
from contrastive_reasoning.rewards.shuffled import ShuffledReward
from contrastive_reasoning.rewards.trl import TRLReward
from contrastive_reasoning.rewards.verifier import VerifierReward
from contrastive_reasoning.rewards.weighted_sum import WeightedSum

VERSION = 6
"""Increment it when the same configuration would give another result: finished stages are then computed anew."""

__all__ = [
    "CLIPOReward",
    "CalibratedReward",
    "ConstantValueReward",
    "Credit",
    "CriticReward",
    "FlippedOracleReward",
    "FormatReward",
    "FunctionReward",
    "FunctionVerifier",
    "GameLevelReward",
    "LinearHead",
    "MLPHead",
    "MonteCarloReward",
    "OracleReward",
    "OverlongReward",
    "PerfectMoveReward",
    "RandomPotentialReward",
    "Reward",
    "ShuffledReward",
    "StepCredit",
    "TRLReward",
    "VerifierReward",
    "WeightedSum",
]
