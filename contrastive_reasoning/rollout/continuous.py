"""One decode for all rows of a rollout batch: rows that finish leave it, waiting ones join as the budget allows.

    join → draw → record → leave → read the drawn tokens → join …

A row that joins draws its first token from the last logits of its prompt, in the same draw as the others.
"""

from __future__ import annotations

import torch
from jaxtyping import Float, Int
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.decoder import decoder_of
from contrastive_reasoning.rollout.completions import Completions, Teller, ends_of
from contrastive_reasoning.rollout.prefill import read_prompts
from contrastive_reasoning.rollout.requests import Requests
from contrastive_reasoning.rollout.sampling import Sampling, draw
from contrastive_reasoning.rollout.schedule import Schedule
from contrastive_reasoning.rollout.shared import SharedCache
from contrastive_reasoning.rollout.step import ModelStep, Step


class ContinuousDecode:
    """All rows from prompt to last token; ``running`` are those in the batch now, by their place in the rollout batch.

    When states are pooled, a row that has ended stays for one pass more, which reads its last token.
    """

    def __init__(
        self,
        policy: CausalLMPolicy,
        requests: Requests,
        completions: Completions,
        sampling: Sampling,
        *,
        budget: int,
        pooled: bool,
        tell: Teller,
    ) -> None:
        self.policy, self.requests, self.completions = policy, requests, completions
        self.sampling, self.pooled, self.tell = sampling, pooled, tell
        self.step: Step = decoder_of(policy) or ModelStep(policy, states=pooled)
        self.ends = ends_of(policy, sampling, requests)
        self.lengths = requests.prompt_mask.sum(1)
        limit = int(requests.limits.max())
        self.schedule = Schedule(self.lengths.tolist(), limit=limit, group_size=requests.group_size, budget=budget)
        self.cache = SharedCache(limit=limit)
        self.running: list[int] = []
        self.first_logits: dict[int, Float[Tensor, " V"]] = {}

    def run(self, uniforms: Float[Tensor, "B T"]) -> None:
        logits = None
        while self.running or self.schedule.waiting:
            logits = self._join(logits)
            tokens, log_probs = draw(logits, uniforms[self.rows, self.completions.lengths[self.rows]], self.sampling)
            alive = self._record(tokens, log_probs)
            if not self.pooled:
                tokens, alive = self._leave(alive, tokens), alive[alive]
            logits = self._read(tokens) if self.running else None
            if self.pooled and logits is not None:
                logits = self._leave(alive, logits)

    def _join(self, logits: Float[Tensor, "b V"] | None) -> Float[Tensor, "c V"]:
        """Let rows join; the logits of all rows, those of their prompts for the new ones."""
        joined = self.schedule.join(self.running)
        if joined:
            self.running += joined
            self._hold()
            self.cache.join([row // self.requests.group_size for row in joined])
            self._changed()
        parts = [] if logits is None else [logits]
        parts += [self.first_logits[row // self.requests.group_size][None] for row in joined]
        return torch.cat(parts)

    def _hold(self) -> None:
        """Read the prompts that are needed now, let go of those that are not."""
        held = self.schedule.held(self.running)
        new = [prompt for prompt in held if prompt not in self.cache.prompts]
        if new or len(held) < len(self.cache.prompts):
            ids, mask = self.requests.prompt_ids, self.requests.prompt_mask
            read = dict(zip(new, read_prompts(self.policy, [ids[p][mask[p]] for p in new]), strict=True))
            self.cache.hold([prompt for prompt in held if prompt not in read], read)
            self.first_logits |= {prompt: done.logits for prompt, done in read.items()}
            self.first_logits = {prompt: self.first_logits[prompt] for prompt in held}

    def _record(self, tokens: Int[Tensor, " b"], log_probs: Float[Tensor, " b"]) -> Tensor:
        """Write down what was drawn; which rows go on writing."""
        into, rows = self.completions, self.rows
        at = into.lengths[rows]
        into.ids[rows, at] = tokens
        into.log_probs[rows, at] = log_probs
        into.lengths[rows] = at + 1
        ended = self.ends.ended(self.running, tokens)
        into.stopped[rows] = ended
        return ~ended & (at + 1 < self.limits)

    def _leave(self, alive: Tensor, values: Tensor) -> Tensor:
        """Let the rows go that do not write any more; the values of those that stay."""
        gone = (~alive).nonzero()[:, 0].tolist()
        if not gone:
            return values
        self.tell([self.running[i] for i in gone])
        order = self.cache.leave(gone)
        self.running = [self.running[i] for i in order]
        if self.running:
            self._changed()
        return values[order]

    def _changed(self) -> None:
        """What depends on which rows run."""
        self.rows = torch.tensor(self.running, device=self.policy.device)
        owner = self.rows // self.requests.group_size
        self.limits, self.starts = self.requests.limits[owner], self.lengths[owner]
        self.cache.seat()

    def _read(self, tokens: Int[Tensor, " b"]) -> Float[Tensor, "b V"]:
        self.cache.advance()
        positions = self.starts + self.completions.lengths[self.rows] - 1
        logits, states = self.step.read(tokens, positions, self.cache)
        if self.pooled and states is not None:
            self.completions.add_states(self.rows, states)
        return logits
