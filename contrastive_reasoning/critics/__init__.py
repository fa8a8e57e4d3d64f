"""Critics f(s, a, g): contrastive values of a step for a goal. Heavy ones are imported when they are first named."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from contrastive_reasoning.critics.base import (
    Critic,
    CriticBatch,
    CriticOracleBatch,
    DotProductCritic,
    TwoTowerCritic,
    members_of,
    rows_of,
    take,
)
from contrastive_reasoning.critics.calibration import Calibration, Isotonic, Platt
from contrastive_reasoning.critics.checkpoint import load_critic_weights, save_critic
from contrastive_reasoning.critics.ensemble import EnsembleCritic
from contrastive_reasoning.critics.numeric import NumericV1, NumericV2

if TYPE_CHECKING:
    from contrastive_reasoning.critics.encoder import Frozen, FullTraining, LoRATraining, TextEncoder, load_encoder
    from contrastive_reasoning.critics.joint import JointCritic
    from contrastive_reasoning.critics.preference import PreferenceBatch, PreferenceCritic
    from contrastive_reasoning.critics.text import TextCritic

_LAZY = {
    "Frozen": "encoder",
    "FullTraining": "encoder",
    "JointCritic": "joint",
    "LoRATraining": "encoder",
    "PreferenceBatch": "preference",
    "PreferenceCritic": "preference",
    "TextCritic": "text",
    "TextEncoder": "encoder",
    "load_encoder": "encoder",
}


def __getattr__(name: str) -> Any:
    if name not in _LAZY:
        raise AttributeError(f"contrastive_reasoning.critics has no {name!r}")
    return getattr(import_module(f"contrastive_reasoning.critics.{_LAZY[name]}"), name)
