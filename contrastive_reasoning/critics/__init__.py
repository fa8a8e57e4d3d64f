"""Critics f(s, a, g): contrastive values of steps for goals."""

from typing import TYPE_CHECKING

from contrastive_reasoning.lazy import lazy_getattr

if TYPE_CHECKING:
    from contrastive_reasoning.critics.base import (
        Critic,
        CriticBatch,
        CriticOracleBatch,
        TraceCritic,
        TwoTowerCritic,
        members_of,
        rows_of,
        take,
    )
    from contrastive_reasoning.critics.calibration import Calibration, Isotonic, Platt
    from contrastive_reasoning.critics.checkpoint import load_critic_weights, save_critic
    from contrastive_reasoning.critics.encoder import Frozen, FullTraining, LoRATraining, TextEncoder, load_encoder
    from contrastive_reasoning.critics.ensemble import EnsembleCritic
    from contrastive_reasoning.critics.joint import JointCritic
    from contrastive_reasoning.critics.number_embedding import NumberCritic
    from contrastive_reasoning.critics.numeric import NumericV1, NumericV2
    from contrastive_reasoning.critics.pairwise import PairwiseCritic
    from contrastive_reasoning.critics.preference import PreferenceBatch, PreferenceCritic
    from contrastive_reasoning.critics.text import TextCritic

__getattr__ = lazy_getattr(__name__)
