"""Generation by ``transformers``' own ``generate``, the rows of one prompt at a time, for policies without padding.

Rows draw as in the other engines: what they draw depends on their own uniforms, not on the other rows.
"""

from __future__ import annotations

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.decoder import write_rows
from contrastive_reasoning.rollout.requests import Completions, Requests, ends_of
from contrastive_reasoning.rollout.sampling import Sampling, draw


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
