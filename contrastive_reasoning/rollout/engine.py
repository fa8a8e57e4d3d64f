"""Generation by this project's own engine, with the policy's own weights and a key-value cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import torch

from contrastive_reasoning.distributed import ranks
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, evaluating
from contrastive_reasoning.policies.shared_cache import TOKENS_AT_ONCE, tokens_in_free_memory
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.continuous import ContinuousDecode
from contrastive_reasoning.rollout.requests import CompletionNotifier, Completions, Written, encode, pooled_states
from contrastive_reasoning.rollout.sampling import Sampling, Seed, row_uniforms
from contrastive_reasoning.rollout.static import StaticDecode
from contrastive_reasoning.rollout.unplanned import RepeatedDecode, UnpaddedDecode
from contrastive_reasoning.tasks.base import Problem


class Engine:
    """Generates with the policy's own weights, a key-value cache, and as many rows at once as the budget allows.

    The draws of a row do not depend on the other rows, up to the rounding of matrix products of another shape.
    ``max_batch_tokens`` bounds the tokens whose keys and values are held at a time: each prompt once, and the longest
    possible completion of each row. (Without planned attention: rows · (prompt + completion) of one decode.) With
    ``auto`` these take a quarter of the memory that is free when a rollout batch begins. With ``cuda_graphs`` decoding
    with planned attention has static shapes, see ``StaticDecode``. Raises ValueError for ``max_batch_tokens`` below 1.
    """

    def __init__(self, *, max_batch_tokens: int | Literal["auto"], cuda_graphs: bool = False) -> None:
        if max_batch_tokens != "auto" and max_batch_tokens < 1:
            raise ValueError(f"max_batch_tokens must be at least 1, or auto, got {max_batch_tokens}")
        self.max_batch_tokens: int | Literal["auto"] = max_batch_tokens
        self.cuda_graphs = cuda_graphs

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
        """See ``RolloutEngine``.

        ``written`` is called for a completion when its row leaves the batch. With ``pooled`` the mean hidden state of
        each completion comes from the same passes: a row then stays for one more pass, which reads its last token.
        """
        requests = encode(policy, problems, group_size, sampling, prefixes)
        width = int(requests.limits.max())
        uniforms = torch.zeros(len(requests), width)
        if not sampling.greedy:
            uniforms = row_uniforms(
                problems,
                group_size=group_size,
                length=width,
                seed=seed,
                prefixes=requests.prefixes,
                earlier=earlier,
            )
        uniforms = uniforms.to(policy.device)
        completions = Completions(len(requests), width + self.cuda_graphs, policy.device)
        notify = CompletionNotifier(completions, policy, written)
        given = self.max_batch_tokens
        budget = tokens_in_free_memory(policy, ranks=ranks()) if given == "auto" else given
        with torch.no_grad(), evaluating(policy.model), policy.autocast():
            if policy.plans_attention and not policy.unpadded:
                kind = StaticDecode if self.cuda_graphs else ContinuousDecode
                decode = kind(policy, requests, completions, sampling, budget=budget, pooled=pooled, notify=notify)
                decode.run(uniforms)
            else:
                for rows in requests.chunks(budget):
                    if policy.unpadded:
                        UnpaddedDecode(policy, requests, rows, completions, sampling).run(uniforms)
                    else:
                        RepeatedDecode(policy, requests, rows, completions, sampling, pooled).run(uniforms)
                    notify(rows)
        rollouts = completions.batch(policy, problems, requests, sampling)
        if pooled and policy.unpadded:
            # a pass through all layers needs more memory for a token than its keys and values
            at_once = TOKENS_AT_ONCE if given == "auto" else given
            states = pooled_states(policy, requests, rollouts, max_batch_tokens=at_once)
            return replace(rollouts, pooled=states)
        return rollouts
