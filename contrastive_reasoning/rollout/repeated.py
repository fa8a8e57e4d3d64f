"""Generation where each row has a copy of its prompt's keys and values: for models whose attention cannot be planned.

prefill   P prompts              →  keys and values, repeated to the B rows
decode    B rows, one token each →  finished rows are dropped when a quarter of the batch has finished
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.completions import Completions, ends_of
from contrastive_reasoning.rollout.requests import Requests
from contrastive_reasoning.rollout.sampling import Sampling, draw

COMPACT_BELOW = 0.75
"""Share of unfinished rows below which finished ones are dropped: dropping copies the cache, keeping wastes a pass."""


class RepeatedDecode:
    """Some rows from prompt to last token.

    ``rows`` are those still in the batch, ``alive`` those still writing, ``needed`` those whose last token is yet to be
    read: the ones that write, and when states are pooled those that have just ended.
    """

    def __init__(
        self,
        policy: CausalLMPolicy,
        requests: Requests,
        rows: range,
        completions: Completions,
        sampling: Sampling,
        pooled: bool,
    ) -> None:
        self.policy, self.completions, self.sampling, self.pooled = policy, completions, sampling, pooled
        self.prompt_ids, self.prompt_mask, self.owner = requests.prompts_of(rows)
        self.limits = requests.limits.repeat_interleave(requests.group_size)
        self.rows = torch.arange(rows.start, rows.stop, device=policy.device)
        self.alive = self.needed = torch.ones(len(rows), dtype=torch.bool, device=policy.device)
        self.ends = ends_of(policy, sampling, requests)

    def run(self, uniforms: Float[Tensor, "B T"]) -> None:
        logits = self._prefill()
        for t in range(uniforms.shape[1]):
            tokens, log_probs = draw(logits, uniforms[self.rows, t], self.sampling)
            self._record(t, tokens, log_probs)
            if not bool(self.needed.any()):
                return
            logits = self._step(self._compact(tokens))
            if not bool(self.alive.any()):
                return

    def _prefill(self) -> Float[Tensor, "B V"]:
        """Read each prompt once; repeat its keys, values and logits to its rows."""
        width = self.prompt_ids.shape[1]
        positions = (self.prompt_mask.long().cumsum(1) - 1).clamp_min(0)
        self.cache = BlockCache(capacity=width)
        logits, _ = self._forward(self.prompt_ids, self.prompt_mask, positions)
        self.capacity = width + int(self.limits[self.rows].max())
        self.cache.take(self.owner, capacity=self.capacity)
        self.mask = torch.ones(len(self.rows), self.capacity, dtype=torch.bool, device=logits.device)
        self.mask[:, :width] = self.prompt_mask[self.owner]
        self.positions = self.prompt_mask.sum(1)[self.owner]
        return logits[self.owner]

    def _record(self, t: int, tokens: Int[Tensor, " b"], log_probs: Float[Tensor, " b"]) -> None:
        into = self.completions
        into.ids[self.rows, t] = tokens
        into.log_probs[self.rows, t] = log_probs
        into.lengths[self.rows] += self.alive
        stopped = self.ends.ended(self.rows.tolist(), tokens) & self.alive
        into.stopped[self.rows] |= stopped
        written = self.alive
        self.alive = self.alive & ~stopped & (into.lengths[self.rows] < self.limits[self.rows])
        self.needed = written if self.pooled else self.alive

    def _compact(self, tokens: Int[Tensor, " b"]) -> Int[Tensor, " c"]:
        """Drop the rows that are not needed if they are many; the tokens of the rows that stay."""
        if float(self.needed.float().mean()) >= COMPACT_BELOW:
            return tokens
        keep = self.needed.nonzero()[:, 0]
        self.cache.take(keep, capacity=self.capacity)
        self.rows, self.alive, self.needed = self.rows[keep], self.alive[keep], self.needed[keep]
        self.mask, self.positions = self.mask[keep], self.positions[keep]
        return tokens[keep]

    def _step(self, tokens: Int[Tensor, " b"]) -> Float[Tensor, "b V"]:
        filled = self.cache.get_seq_length() + 1
        logits, states = self._forward(tokens[:, None], self.mask[:, :filled], self.positions[:, None])
        self.positions = self.positions + 1
        if states is not None:
            self.completions.add_states(self.rows[self.needed], states[self.needed])
        return logits

    def _forward(
        self, ids: Int[Tensor, "b Q"], mask: Bool[Tensor, "b K"], positions: Int[Tensor, "b Q"]
    ) -> tuple[Float[Tensor, "b V"], Float[Tensor, "b D"] | None]:
        """Logits of the token after the last of ``ids``, and the last hidden state there if states are pooled."""
        output = self.policy.model(
            input_ids=ids,
            attention_mask=mask,
            position_ids=positions,
            past_key_values=self.cache,
            use_cache=True,
            logits_to_keep=1,
            output_hidden_states=self.pooled,
        )
        return output.logits[:, -1], output.hidden_states[-1][:, -1] if self.pooled else None


class BlockLayer(CacheLayerMixin):
    """Keys and values of one layer in blocks (row, head, capacity, head width), filled up to ``length``.

    Appending to a tensor copies it at every token; a view of a block allocated for the whole completion does not.
    """

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
