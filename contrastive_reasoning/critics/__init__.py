"""Critics f(s, a, g): contrastive values of steps for goals."""

from typing import TYPE_CHECKING

from contrastive_reasoning.lazy import lazy_getattr

if TYPE_CHECKING:
    from contrastive_reasoning.critics.base import (
        Critic as Critic,
        CriticBatch as CriticBatch,
        CriticOracleBatch as CriticOracleBatch,
        TraceCritic as TraceCritic,
        TwoTowerCritic as TwoTowerCritic,
        members_of as members_of,
        rows_of as rows_of,
        take as take,
    )
    from contrastive_reasoning.critics.calibration import (
        Calibration as Calibration,
        Isotonic as Isotonic,
        Platt as Platt,
    )
    from contrastive_reasoning.critics.checkpoint import (
        load_critic_weights as load_critic_weights,
        save_critic as save_critic,
    )
    from contrastive_reasoning.critics.encoder import (
        Frozen as Frozen,
        FullTraining as FullTraining,
        LoRATraining as LoRATraining,
        TextEncoder as TextEncoder,
        load_encoder as load_encoder,
    )
    from contrastive_reasoning.critics.ensemble import EnsembleCritic as EnsembleCritic
    from contrastive_reasoning.critics.joint import JointCritic as JointCritic
    from contrastive_reasoning.critics.number_embedding import NumberCritic as NumberCritic
    from contrastive_reasoning.critics.numeric import NumericV1 as NumericV1, NumericV2 as NumericV2
    from contrastive_reasoning.critics.pairwise import PairwiseCritic as PairwiseCritic
    from contrastive_reasoning.critics.preference import (
        PreferenceBatch as PreferenceBatch,
        PreferenceCritic as PreferenceCritic,
    )
    from contrastive_reasoning.critics.text import TextCritic as TextCritic

__getattr__ = lazy_getattr(__name__)
