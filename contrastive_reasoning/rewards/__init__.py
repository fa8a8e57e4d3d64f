"""Rewards of a rollout batch, per rollout and per step, each source under its own name."""

from typing import TYPE_CHECKING

from contrastive_reasoning.lazy import lazy_getattr

if TYPE_CHECKING:
    from contrastive_reasoning.rewards.base import Credit as Credit, Reward as Reward, StepCredit as StepCredit
    from contrastive_reasoning.rewards.calibrated import CalibratedReward as CalibratedReward
    from contrastive_reasoning.rewards.clipo import (
        CLIPOReward as CLIPOReward,
        LinearHead as LinearHead,
        MLPHead as MLPHead,
    )
    from contrastive_reasoning.rewards.composite import GameLevelReward as GameLevelReward, WeightedSum as WeightedSum
    from contrastive_reasoning.rewards.controls import (
        ConstantLogit as ConstantLogit,
        ConstantValueReward as ConstantValueReward,
        FlippedOracleReward as FlippedOracleReward,
        RandomPotentialReward as RandomPotentialReward,
        ShuffledCalibratedReward as ShuffledCalibratedReward,
        ShuffledReward as ShuffledReward,
    )
    from contrastive_reasoning.rewards.correct_bonus import (
        CorrectBonus as CorrectBonus,
        RandomScore as RandomScore,
        VerdictField as VerdictField,
    )
    from contrastive_reasoning.rewards.critic import CriticReward as CriticReward
    from contrastive_reasoning.rewards.function import (
        FunctionReward as FunctionReward,
        FunctionVerifier as FunctionVerifier,
    )
    from contrastive_reasoning.rewards.in_trl import RewardInTRL as RewardInTRL
    from contrastive_reasoning.rewards.monte_carlo import MonteCarloReward as MonteCarloReward
    from contrastive_reasoning.rewards.oracle import (
        OracleReward as OracleReward,
        PerfectMoveReward as PerfectMoveReward,
    )
    from contrastive_reasoning.rewards.ramped_critic import RampedCriticReward as RampedCriticReward
    from contrastive_reasoning.rewards.trl import TRLReward as TRLReward
    from contrastive_reasoning.rewards.verifier import (
        FormatReward as FormatReward,
        OverlongReward as OverlongReward,
        TaskScoreReward as TaskScoreReward,
        VerifierReward as VerifierReward,
    )

__getattr__ = lazy_getattr(__name__)
