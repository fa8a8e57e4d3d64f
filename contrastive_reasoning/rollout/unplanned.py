"""Generation for models without planned attention, for some rows of a batch at a time.

``RepeatedDecode``: each row has a copy of its prompt's keys and values.

    prefill   P prompts              →  keys and values, repeated to the B rows
    decode    B rows, one token each →  finished rows are dropped when a quarter of the batch has finished

``UnpaddedDecode``, for policies without padding: ``transformers``' own ``generate``, the rows of one prompt at a time.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.decoder import cache_of, cached_pass, select_rows, write_rows
from contrastive_reasoning.rollout.requests import Completions, Requests, ends_of
from contrastive_reasoning.rollout.sampling import Sampling, draw

COMPACT_BELOW = 0.75
"""Share of unfinished rows below which finished ones are dropped: dropping copies the cache, keeping wastes a pass."""


class RepeatedDecode:
    """Decodes some rows from prompt to last token.

    ``rows`` are those still in the batch, and ``alive`` those still writing. ``needed`` are those whose last token is
    still to be read: the writing rows and, if states are pooled, those that have just ended.
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
        """Reads each prompt once; repeats its keys, values and logits to its rows."""
        width = self.prompt_ids.shape[1]
        positions = (self.prompt_mask.long().cumsum(1) - 1).clamp_min(0)
        self.cache, self.filled = cache_of(self.policy), width
        logits, _ = self._forward(self.prompt_ids, self.prompt_mask, positions)
        select_rows(self.cache, self.owner)
        longest = width + int(self.limits[self.rows].max())
        self.mask = torch.ones(len(self.rows), longest, dtype=torch.bool, device=logits.device)
        self.mask[:, :width] = self.prompt_mask[self.owner]
        self.positions = self.prompt_mask.sum(1)[self.owner]
        return logits[self.owner]

    def _record(self, t: int, tokens: Int[Tensor, " b"], log_probs: Float[Tensor, " b"]) -> None:
        ended, written = self.ends.ended(self.rows.tolist(), tokens), self.alive
        self.alive = self.completions.write(
            self.rows, t, tokens, log_probs, alive=written, ended=ended, limits=self.limits[self.rows]
        )
        self.needed = written if self.pooled else self.alive

    def _compact(self, tokens: Int[Tensor, " b"]) -> Int[Tensor, " c"]:
        """Drops unneeded rows if there are many; returns the tokens of the remaining rows."""
        if float(self.needed.float().mean()) >= COMPACT_BELOW:
            return tokens
        keep = self.needed.nonzero()[:, 0]
        select_rows(self.cache, keep)
        self.rows, self.alive, self.needed = self.rows[keep], self.alive[keep], self.needed[keep]
        self.mask, self.positions = self.mask[keep], self.positions[keep]
        return tokens[keep]

    def _step(self, tokens: Int[Tensor, " b"]) -> Float[Tensor, "b V"]:
        self.filled += 1
        logits, states = self._forward(tokens[:, None], self.mask[:, : self.filled], self.positions[:, None])
        self.positions = self.positions + 1
        if states is not None:
            self.completions.add_states(self.rows[self.needed], states[self.needed])
        return logits

    def _forward(
        self, ids: Int[Tensor, "b Q"], mask: Bool[Tensor, "b K"], positions: Int[Tensor, "b Q"]
    ) -> tuple[Float[Tensor, "b V"], Float[Tensor, "b D"] | None]:
        """Logits of the token after the last of ``ids``, and the last hidden state there if states are pooled."""
        return cached_pass(self.policy, ids, mask, positions, self.cache, states=self.pooled)


class UnpaddedDecode:
    """Decodes some rows from prompt to last token; ``rows`` are indices into the rollout batch."""

    def __init__(
        self, policy: CausalLMPolicy, requests: Requests, rows: range, completions: Completions, sampling: Sampling
    ) -> None:
        self.policy, self.requests, self.rows = policy, requests, rows
        self.completions, self.sampling = completions, sampling
        self.ends = ends_of(policy, sampling, requests)

    def run(self, uniforms: Float[Tensor, "B T"]) -> None:
        size = self.requests.group_size
        for prompt in range(self.rows.start // size, -(-self.rows.stop // size)):
            first, last = max(prompt * size, self.rows.start), min((prompt + 1) * size, self.rows.stop)
            self._write(prompt, torch.arange(first, last, device=self.policy.device), uniforms)

    def _write(self, prompt: int, rows: Int[Tensor, " b"], uniforms: Float[Tensor, "B T"]) -> None:
        into, limits = self.completions, self.requests.limits[prompt].expand(len(rows))
        alive = torch.ones(len(rows), dtype=torch.bool, device=rows.device)

        def choose(logits: Float[Tensor, "b V"]) -> tuple[Int[Tensor, " b"], Bool[Tensor, " b"]]:
            nonlocal alive
            at = int(into.lengths[rows].max())  # the length of each row that continues
            tokens, log_probs = draw(logits, uniforms[rows, at], self.sampling)
            ended = self.ends.ended(rows.tolist(), tokens)
            alive = into.write(rows, at, tokens, log_probs, alive=alive, ended=ended, limits=limits)
            return tokens, ~alive

        ids = self.requests.prompt_ids[prompt][self.requests.prompt_mask[prompt]]
        write_rows(self.policy, ids, rows=len(rows), limit=int(limits[0]), choose=choose)
