"""How ZeRO's shards are read: as tensors, numbers and containers of them, never as code.

Deepspeed's own engine unpickles whatever a file holds. What its files hold besides tensors is named here; a file with
anything else in it is refused before any of it is run.
"""

from __future__ import annotations

from typing import Any

import torch
from deepspeed.runtime.checkpoint_engine import TorchCheckpointEngine
from deepspeed.runtime.fp16.loss_scaler import DynamicLossScaler, LossScaler
from deepspeed.runtime.zero.config import ZeroStageEnum
from deepspeed.utils.tensor_fragment import fragment_address

HARMLESS = [LossScaler, DynamicLossScaler, ZeroStageEnum, fragment_address]
"""Of deepspeed's classes those that its shards hold; they are numbers."""


class WeightsOnlyEngine(TorchCheckpointEngine):
    """Saves as deepspeed does, loads with ``weights_only=True``.

    Raises:
        pickle.UnpicklingError: while loading a file that asks for anything else.
    """

    def load(self, path: str, map_location: Any = None) -> Any:
        with torch.serialization.safe_globals(HARMLESS):
            return torch.load(path, map_location=map_location, weights_only=True)
