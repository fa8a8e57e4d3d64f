"""Continuous decoding: each prompt is read once, and its keys and values are shared by its group.

    join → draw → record → leave → read the drawn tokens → join …

One decode runs for all rows of a rollout batch: finished rows leave it, and waiting rows join as the budget allows. A
joining row draws its first token from the last logits of its prompt, in the same draw as the others.

Omitted on purpose: paging (rows reserve what they may need).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float, Int
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.decoder import Step, step_of
from contrastive_reasoning.policies.shared_cache import SharedCache, read_prompts
from contrastive_reasoning.rollout.requests import CompletionNotifier, Completions, Requests, ends_of
from contrastive_reasoning.rollout.sampling import Sampling, draw


class ContinuousDecode:
    """Decodes all rows from prompt to last token; ``running`` are the current rows, as indices into the rollout batch.

    If states are pooled, a row that has ended stays for one more pass, which reads its last token.
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
        notify: CompletionNotifier,
    ) -> None:
        self.policy, self.requests, self.completions = policy, requests, completions
        self.sampling, self.pooled, self.notify = sampling, pooled, notify
        self.step: Step = step_of(policy, states=pooled)
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
        """Adds rows that may join; returns the logits of all rows, for new ones those of their prompts."""
        joined = self._admit()
        parts = [] if logits is None else [logits]
        return torch.cat([*parts, *(self._logits_of_prompt(row)[None] for row in joined)])

    def _admit(self) -> list[int]:
        """Adds the rows that may join, and returns them."""
        joined = self.schedule.join(self.running)
        if joined:
            self.running += joined
            self._hold()
            self.cache.join([row // self.requests.group_size for row in joined])
            self._changed()
        return joined

    def _logits_of_prompt(self, row: int) -> Float[Tensor, " V"]:
        return self.first_logits[row // self.requests.group_size]

    def _hold(self) -> None:
        """Reads the prompts that are needed now, and releases those that are not."""
        held = self.schedule.held(self.running)
        new = [prompt for prompt in held if prompt not in self.cache.prompts]
        if new or len(held) < len(self.cache.prompts):
            ids, mask = self.requests.prompt_ids, self.requests.prompt_mask
            read = dict(zip(new, read_prompts(self.policy, [ids[p][mask[p]] for p in new]), strict=True))
            self.cache.hold([prompt for prompt in held if prompt not in read], read)
            self.first_logits |= {prompt: done.logits for prompt, done in read.items()}
            self.first_logits = {prompt: self.first_logits[prompt] for prompt in held}

    def _record(self, tokens: Int[Tensor, " b"], log_probs: Float[Tensor, " b"]) -> Tensor:
        """Records the drawn tokens; returns which rows continue."""
        into, rows = self.completions, self.rows
        at = into.lengths[rows]
        into.ids[rows, at] = tokens
        into.log_probs[rows, at] = log_probs
        into.lengths[rows] = at + 1
        ended = self.ends.ended(self.running, tokens)
        into.stopped[rows] = ended
        return ~ended & (at + 1 < self.limits)

    def _leave(self, alive: Tensor, values: Tensor) -> Tensor:
        """Removes the rows that have ended; returns the values of the others."""
        gone = (~alive).nonzero()[:, 0].tolist()
        if not gone:
            return values
        self.notify([self.running[i] for i in gone])
        order = self.cache.leave(gone)
        self.running = [self.running[i] for i in order]
        if self.running:
            self._changed()
        return values[order]

    def _changed(self) -> None:
        """Updates what depends on the set of running rows."""
        self.rows = torch.tensor(self.running, device=self.policy.device)
        owner = self.rows // self.requests.group_size
        self.limits, self.starts = self.requests.limits[owner], self.lengths[owner]
        self.cache.lay_out()

    def _read(self, tokens: Int[Tensor, " b"]) -> Float[Tensor, "b V"]:
        self.cache.advance()
        positions = self.starts + self.completions.lengths[self.rows] - 1
        logits, states = self.step.read(tokens, positions, self.cache)
        if self.pooled and states is not None:
            self.completions.add_states(self.rows, states)
        return logits


class Schedule:
    """Decides which rows join a running decode: in order, as soon as what they reserve fits into the budget.

        reserved  =  prompts held · longest of them  +  rows · tokens of the longest completion

    Rows p·G … p·G+G−1 belong to prompt p. A prompt is held from the joining of its first row until its last row has
    left, so it is read once.
    """

    def __init__(self, lengths: Sequence[int], *, limit: int, group_size: int, budget: int) -> None:
        self.lengths = list(lengths)
        self.limit = limit
        self.group_size = group_size
        self.budget = budget
        self.next_row = 0

    @property
    def waiting(self) -> bool:
        return self.next_row < len(self.lengths) * self.group_size

    def held(self, running: Sequence[int]) -> list[int]:
        """The prompts of the running rows, and of a group of which some rows wait and others have joined."""
        incomplete = [self.next_row] if self.waiting and self.next_row % self.group_size else []
        return sorted({row // self.group_size for row in [*running, *incomplete]})

    def reserved(self, running: Sequence[int]) -> int:
        """Tokens of the keys and values held while these rows run."""
        prompts = self.held(running)
        return len(prompts) * max((self.lengths[p] for p in prompts), default=0) + len(running) * self.limit

    def join(self, running: Sequence[int]) -> list[int]:
        """The rows that now join the running ones: as many as fit, at least one if nothing runs."""
        rows, joined = list(running), []
        while self.waiting:
            row, self.next_row = self.next_row, self.next_row + 1
            if rows and self.reserved([*rows, row]) > self.budget:
                self.next_row = row
                break
            rows.append(row)
            joined.append(row)
        return joined
