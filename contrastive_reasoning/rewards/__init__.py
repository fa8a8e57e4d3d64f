"""Rewards of a rollout batch, per rollout and per step, each source under its own name."""

from typing import TYPE_CHECKING

from contrastive_reasoning.lazy import lazy_getattr

if TYPE_CHECKING:
    from contrastive_reasoning.rewards.base import Credit, Reward, StepCredit
    from contrastive_reasoning.rewards.calibrated import CalibratedReward
    from contrastive_reasoning.rewards.clipo import CLIPOReward, LinearHead, MLPHead
    from contrastive_reasoning.rewards.composite import GameLevelReward, WeightedSum
    from contrastive_reasoning.rewards.controls import (
        ConstantLogit,
        ConstantValueReward,
        FlippedOracleReward,
        RandomPotentialReward,
        ShuffledCalibratedReward,
        ShuffledReward,
    )
    from contrastive_reasoning.rewards.correct_bonus import CorrectBonus, RandomScore, VerdictField
    from contrastive_reasoning.rewards.critic import CriticReward
    from contrastive_reasoning.rewards.function import FunctionReward, FunctionVerifier
    from contrastive_reasoning.rewards.in_trl import RewardInTRL
    from contrastive_reasoning.rewards.monte_carlo import MonteCarloReward
    from contrastive_reasoning.rewards.oracle import OracleReward, PerfectMoveReward
    from contrastive_reasoning.rewards.ramped_critic import RampedCriticReward
    from contrastive_reasoning.rewards.trl import TRLReward
    from contrastive_reasoning.rewards.verifier import FormatReward, OverlongReward, TaskScoreReward, VerifierReward

__getattr__ = lazy_getattr(__name__)
