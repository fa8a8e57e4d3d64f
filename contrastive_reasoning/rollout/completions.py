"""Completions while they are written, and the rollout batch they become."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.requests import Requests, Written
from contrastive_reasoning.rollout.sampling import Ends, Sampling, StopStrings
from contrastive_reasoning.rollout.spans import text_of, token_bytes, token_spans
from contrastive_reasoning.tasks.base import Problem


class Completions:
    """B completions of up to T tokens, filled column by column; what lies beyond a row's length is ignored."""

    def __init__(self, rows: int, width: int, device: torch.device) -> None:
        self.ids: Int[Tensor, "B T"] = torch.zeros(rows, width, dtype=torch.long, device=device)
        self.log_probs: Float[Tensor, "B T"] = torch.zeros(rows, width, device=device)
        self.lengths: Int[Tensor, " B"] = torch.zeros(rows, dtype=torch.long, device=device)
        self.stopped: Bool[Tensor, " B"] = torch.zeros(rows, dtype=torch.bool, device=device)
        self.states: Float[Tensor, "B D"] | None = None

    def add_states(self, rows: Int[Tensor, " b"], states: Float[Tensor, "b D"]) -> None:
        """Add the hidden states of one token each to the sums of these rows, in fp32."""
        if self.states is None:
            self.states = torch.zeros(len(self.ids), states.shape[1], device=states.device)
        self.states[rows] += states.float()

    def batch(
        self, policy: CausalLMPolicy, problems: Sequence[Problem], requests: Requests, sampling: Sampling
    ) -> RolloutBatch:
        """The rollouts, as wide as the longest of them."""
        width = int(self.lengths.max())
        mask = torch.arange(width, device=self.ids.device) < self.lengths[:, None]
        ids = self.ids[:, :width].masked_fill(~mask, policy.pad_token_id)
        table = spelling(policy)
        rows = [row[:length] for row, length in zip(ids.tolist(), self.lengths.tolist(), strict=True)]
        return RolloutBatch(
            problems=list(problems),
            prompt_ids=requests.prompt_ids,
            prompt_mask=requests.prompt_mask,
            completion_ids=ids,
            mask=mask,
            old_log_probs=self.log_probs[:, :width].masked_fill(~mask, 0.0),
            temperature=sampling.scoring_temperature,
            pooled=None if self.states is None else self.states / self.lengths[:, None],
            texts=[text_of(table, row) for row in rows],
            token_spans=[token_spans(table, row) for row in rows],
            finish_reasons=["stop" if stopped else "length" for stopped in self.stopped.tolist()],
            group_size=requests.group_size,
        )


class CompletionNotifier:
    """Calls ``written`` for completions that have ended; does nothing where there is no such callback."""

    def __init__(self, completions: Completions, policy: CausalLMPolicy, written: Written | None) -> None:
        self.completions, self.written = completions, written
        self.table = () if written is None else spelling(policy)

    def __call__(self, rows: Sequence[int]) -> None:
        """These rows are written."""
        if self.written is None:
            return
        at = list(rows)
        ids, lengths = self.completions.ids[at].tolist(), self.completions.lengths[at].tolist()
        for row, tokens, length in zip(at, ids, lengths, strict=True):
            self.written(row, text_of(self.table, tokens[:length]))


def spelling(policy: CausalLMPolicy) -> Sequence[bytes]:
    """The bytes of each token of the policy; tokens that end a completion spell nothing, special or not."""
    table = list(token_bytes(policy.tokenizer))
    for token in policy.eos_token_ids:
        if token < len(table):
            table[token] = b""
    return table


def ends_of(policy: CausalLMPolicy, sampling: Sampling, requests: Requests) -> Ends:
    """What ends each row."""
    stops = None
    if sampling.stop:
        stops = StopStrings(sampling.stop, spelling(policy), rows=len(requests), begun=requests.begun)
    return Ends(policy.eos_token_ids, stops, policy.device)


@torch.no_grad()
def pooled_states(
    policy: CausalLMPolicy, requests: Requests, rollouts: RolloutBatch, *, max_batch_tokens: int
) -> Float[Tensor, "B D"]:
    """Mean hidden states of the completions; ``max_batch_tokens`` bounds rows · (prompt + completion) of a pass."""
    parts = []
    with evaluating(policy.model):
        for rows in requests.chunks(max_batch_tokens):
            ids, mask, owner = requests.prompts_of(rows)
            span = slice(rows.start, rows.stop)
            completions, written = rollouts.completion_ids[span], rollouts.mask[span]
            parts.append(policy.log_probs_and_pooled(ids, mask, completions, written, owner=owner)[1])
    return torch.cat(parts)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Every module in evaluation mode, each put back afterwards as it was."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
