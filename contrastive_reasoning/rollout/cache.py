"""Keys and values of one decode, allocated once: written in place, rows repeated or dropped by index.

Appending to a tensor copies it at every token; a view of a block allocated for the whole completion does not.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class BlockLayer(CacheLayerMixin):
    """Keys and values of one layer in blocks (row, head, capacity, head width), filled up to ``length``."""

    is_sliding = False

    def __init__(self, *, capacity: int) -> None:
        super().__init__()
        self.capacity = capacity
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = _block(key_states, key_states.shape[0], self.capacity)
        self.values = _block(value_states, value_states.shape[0], self.capacity)
        self.is_initialized = True

    def update(
        self,
        key_states: Float[Tensor, "B H Q W"],
        value_states: Float[Tensor, "B H Q W"],
        *args: object,
        **kwargs: object,
    ) -> tuple[Float[Tensor, "B H K W"], Float[Tensor, "B H K W"]]:
        """Write Q new positions; give the K filled ones."""
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        keys, values = self._filled()
        start, self.length = self.length, self.length + key_states.shape[2]
        keys[:, :, start : self.length] = key_states
        values[:, :, start : self.length] = value_states
        return keys[:, :, : self.length], values[:, :, : self.length]

    def take(self, rows: Int[Tensor, " R"], *, capacity: int) -> None:
        """Make row i what row ``rows[i]`` was, in a block of ``capacity`` positions."""
        self.keys, self.values = (self._taken(block, rows, capacity) for block in self._filled())
        self.capacity = capacity

    def _taken(self, old: Tensor, rows: Tensor, capacity: int) -> Tensor:
        new = _block(old, len(rows), capacity)
        new[:, :, : self.length] = old[rows, :, : self.length]
        return new

    def _filled(self) -> tuple[Tensor, Tensor]:
        if self.keys is None or self.values is None:
            raise RuntimeError("the cache is empty: nothing was read yet")
        return self.keys, self.values

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.capacity


class BlockCache(Cache):
    """A ``BlockLayer`` for each layer of the model, made as the first forward pass reaches it."""

    def __init__(self, *, capacity: int) -> None:
        super().__init__(layers=[])
        self.capacity = capacity

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[Tensor, Tensor]:
        while len(self.layers) <= layer_idx:
            self.layers.append(BlockLayer(capacity=self.capacity))
        return super().update(key_states, value_states, layer_idx)

    def take(self, rows: Int[Tensor, " R"], *, capacity: int) -> None:
        """Repeat, reorder or drop rows: row i becomes what row ``rows[i]`` was."""
        self.capacity = capacity
        for layer in self.layers:
            assert isinstance(layer, BlockLayer)
            layer.take(rows, capacity=capacity)


def _block(like: Tensor, rows: int, capacity: int) -> Tensor:
    _, heads, _, width = like.shape
    return torch.empty(rows, heads, capacity, width, dtype=like.dtype, device=like.device)
