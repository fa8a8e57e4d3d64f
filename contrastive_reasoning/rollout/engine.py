"""Our own generation: each prompt is read once and its keys and values are kept once for its whole group.

    prefill   the prompts whose rows join  →  keys and values, shared by their rows
    decode    one token of each row        →  rows that finish leave, waiting ones join

Left out on purpose: paging (rows reserve what they may need) and CUDA graphs.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.base import Written
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.completions import CompletionNotifier, Completions, evaluating
from contrastive_reasoning.rollout.continuous import ContinuousDecode
from contrastive_reasoning.rollout.repeated import RepeatedDecode
from contrastive_reasoning.rollout.requests import encode
from contrastive_reasoning.rollout.sampling import Sampling, Seed, row_uniforms
from contrastive_reasoning.tasks.base import Problem


class Engine:
    """Generates with the policy's own weights, a key-value cache, and as many rows at once as the budget allows.

    What a row draws does not depend on the other rows, up to the rounding of matrix products of another shape.
    ``max_batch_tokens`` bounds the tokens whose keys and values are held at a time: each prompt once, and the longest
    possible completion of each row. (Where attention cannot be planned: rows · (prompt + completion) of one decode.)
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
        written: Written | None = None,
    ) -> RolloutBatch:
        """``group_size`` completions of each problem; the same for the same seed and weights.

        ``written`` is called for a completion when its row leaves the batch. With ``pooled`` the mean hidden state of
        each completion comes from the same passes: a row then stays for one pass more, which reads its last token.

        Raises:
            ValueError: for no problems, a group size below 1, a prompt that does not fit the context, or a prefix that
                leaves nothing to write.
        """
        limit = sampling.max_tokens
        requests = encode(policy, problems, group_size=group_size, max_tokens=limit, prefixes=prefixes)
        width = int(requests.limits.max())
        uniforms = torch.zeros(len(requests), width, device=policy.device)
        if not sampling.greedy:
            rows = row_uniforms(problems, group_size=group_size, length=width, seed=seed, prefixes=requests.prefixes)
            uniforms = rows.to(policy.device)
        completions = Completions(len(requests), width, policy.device)
        notify = CompletionNotifier(completions, policy, written)
        with torch.no_grad(), evaluating(policy.model), policy.autocast():
            if policy.plans_attention:
                decode = ContinuousDecode(
                    policy, requests, completions, sampling, budget=self.max_batch_tokens, pooled=pooled, notify=notify
                )
                decode.run(uniforms)
            else:
                for rows in requests.chunks(self.max_batch_tokens):
                    RepeatedDecode(policy, requests, rows, completions, sampling, pooled).run(uniforms)
                    notify(rows)
        return completions.batch(policy, problems, requests, sampling)
