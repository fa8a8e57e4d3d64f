"""Boards as the rows that critics read: sorted descending, padded with −1; ``encode_state`` for many boards at once."""

from __future__ import annotations

import numpy as np
import torch
from jaxtyping import Int
from numpy import ndarray
from torch import Tensor

from contrastive_reasoning.tasks.countdown.encoding import PADDING, WIDTH


def encode_boards(boards: Int[ndarray, "N K"]) -> Int[Tensor, "N 6"]:
    """N boards of K ≤ 6 numbers; entries of −1 are padding already."""
    rows = -np.sort(-boards.astype(np.int64), axis=1)
    return torch.from_numpy(np.pad(rows, ((0, 0), (0, WIDTH - rows.shape[1])), constant_values=PADDING))
