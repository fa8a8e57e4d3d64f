"""``transformers``' own ``generate``: slow and simple, the reference in tests of ``Engine``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from transformers import GenerationConfig

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, evaluating
from contrastive_reasoning.policies.decoder import without_own_settings
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.requests import (
    CompletionNotifier,
    Completions,
    Requests,
    Written,
    encode,
    pooled_states,
)
from contrastive_reasoning.rollout.sampling import Sampling, Seed, derived_seed
from contrastive_reasoning.tasks.base import Problem


class HFEngine:
    """An engine with the interface of ``Engine``, without stop strings and prefixes.

    Draws depend on the seed and on the division of rows into decodes.
    """

    def __init__(self, *, max_batch_tokens: int) -> None:
        if max_batch_tokens < 1:
            raise ValueError(f"max_batch_tokens must be at least 1, got {max_batch_tokens}")
        self.max_batch_tokens = max_batch_tokens

    def generate(
        self,
        policy: CausalLMPolicy,
        problems: Sequence[Problem],
        *,
        group_size: int,
        sampling: Sampling,
        seed: Seed,
        pooled: bool = False,
        prefixes: Sequence[Sequence[int]] | None = None,
        earlier: Sequence[int] | None = None,
        written: Written | None = None,
    ) -> RolloutBatch:
        """See ``RolloutEngine``."""
        assert not sampling.stop
        assert prefixes is None
        requests = encode(policy, problems, group_size, sampling, None)
        completions = Completions(len(requests), int(requests.limits.max()), policy.device)
        notify = CompletionNotifier(completions, policy, written)
        # without it, two ranks would draw the same for a problem that both have in the same row
        repeated = [f"{one.id} {before}" for one, before in zip(problems, earlier or (), strict=False) if before]
        devices = [policy.device] if policy.device.type == "cuda" else []
        with torch.no_grad(), evaluating(policy.model), policy.autocast(), torch.random.fork_rng(devices=devices):
            for rows in requests.chunks(self.max_batch_tokens):
                torch.manual_seed(derived_seed((*seed, rows.start, *repeated)))
                _write(policy, requests, rows, completions, sampling)
                notify(rows)
        rollouts = completions.batch(policy, problems, requests, sampling)
        if not pooled:
            return rollouts
        states = pooled_states(policy, requests, rollouts, max_batch_tokens=self.max_batch_tokens)
        return replace(rollouts, pooled=states)


def _write(
    policy: CausalLMPolicy, requests: Requests, rows: range, completions: Completions, sampling: Sampling
) -> None:
    ids, mask, owner = requests.prompts_of(rows)
    with without_own_settings(policy.model):
        output = policy.model.generate(  # pyright: ignore[reportCallIssue]
            input_ids=ids[owner],
            attention_mask=mask[owner].long(),
            generation_config=_settings(policy, sampling, requests, rows),
        )
    tokens = output.sequences[:, ids.shape[1] :]
    logits = torch.stack(output.logits, dim=1).float() / sampling.scoring_temperature
    log_probs = logits.log_softmax(-1).gather(-1, tokens[..., None])[..., 0]
    span = slice(rows.start, rows.stop)
    completions.ids[span, : tokens.shape[1]] = tokens
    completions.log_probs[span, : tokens.shape[1]] = log_probs
    for row, written in zip(rows, tokens.tolist(), strict=True):
        limit = int(requests.limits[row // requests.group_size])
        length = next((n for n, token in enumerate(written, start=1) if token in policy.eos_token_ids), None)
        completions.lengths[row] = min(length or limit, limit)
        completions.stopped[row] = length is not None and length <= limit


def _settings(policy: CausalLMPolicy, sampling: Sampling, requests: Requests, rows: range) -> GenerationConfig:
    first, last = rows.start // requests.group_size, (rows.stop - 1) // requests.group_size
    cut = {"temperature": sampling.temperature, "top_k": sampling.top_k or 0, "top_p": sampling.top_p}
    return GenerationConfig(
        do_sample=not sampling.greedy,
        num_beams=1,
        repetition_penalty=1.0,
        max_new_tokens=int(requests.limits[first : last + 1].max()),
        eos_token_id=list(policy.eos_token_ids),
        pad_token_id=policy.pad_token_id,
        output_logits=True,
        return_dict_in_generate=True,
        **({} if sampling.greedy else cut),
    )
