"""Groups moved between ranks once they are drawn, so that every rank learns from nearly as many tokens.

    drawn      rank 0  ▇▇▇ ▁ ▁    rank 1  ▇▇▇ ▅ ▇▇▇      ▁ a group of equals: none of it passes through the policy
    learned    rank 0  ▇▇▇ ▅ ▁    rank 1  ▇▇▇ ▁ ▇▇▇      as many groups on each as before

Ranks wait for each other in every update, and for whichever has most. What is learned is a sum over all rows, so that
it does not matter who has which.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress

import torch
from jaxtyping import Bool, Float
from torch import Tensor
from torch.nn.functional import pad

from contrastive_reasoning.distributed import even_shares, gather, gather_groups, most, ranks, this_rank, unshare
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.pass_cost import Lengths
from contrastive_reasoning.rollout.batch import RolloutTokens


def balanced(
    rollouts: RolloutTokens,
    advantages: Float[Tensor, "B T"],
    *,
    taught: Bool[Tensor, " B"],
    policy: CausalLMPolicy,
    minibatches: int,
) -> tuple[RolloutTokens, Float[Tensor, "B t"]]:
    """This rank's part of what all ranks drew, with its advantages: whole groups, as many as it had in a mini-batch.

    In a run of one process, and where moving would even nothing, they are its own.

    Args:
        rollouts: drawn by this rank.
        advantages: of their tokens.
        taught: rows that will pass through the policy.
        policy: how many tokens that is.
        minibatches: that the groups will be cut into, in their order; none leaves its own.
    """
    if ranks() == 1:
        return rollouts, advantages
    costs = unshare(gather(group_tokens(rollouts, taught, policy)))
    own = places(costs, minibatches)
    if own is None:
        return rollouts, advantages
    groups = torch.tensor(own[this_rank()], device=rollouts.mask.device)
    rows = (groups[:, None] * rollouts.group_size + torch.arange(rollouts.group_size, device=groups.device)).flatten()
    prompt_width, width = most(rollouts.prompt_mask.shape[1]), most(rollouts.mask.shape[1])

    def prompts(mine: Tensor) -> Tensor:
        return gather_groups(pad(mine, (prompt_width - mine.shape[1], 0)), 1)[groups]

    def completions(mine: Tensor) -> Tensor:
        return gather_groups(pad(mine, (0, width - mine.shape[1])), rollouts.group_size)[rows]

    moved = RolloutTokens(
        prompt_ids=prompts(rollouts.prompt_ids),
        prompt_mask=prompts(rollouts.prompt_mask),
        completion_ids=completions(rollouts.completion_ids),
        mask=completions(rollouts.mask),
        old_log_probs=completions(rollouts.old_log_probs),
        temperature=rollouts.temperature,
        group_size=rollouts.group_size,
    )
    return moved, completions(advantages)


def places(costs: Sequence[int], minibatches: int) -> list[list[int]] | None:
    """For every rank the groups that it learns from, mini-batch by mini-batch; None where each keeps what it drew."""
    size = len(costs) // minibatches
    found: list[list[int]] = [[] for _ in range(ranks())]
    for first in range(0, len(costs), size):
        for own, part in zip(found, even_shares(costs[first : first + size], ranks()), strict=True):
            own += [first + place for place in part]
    drawn = [list(range(rank, len(costs), ranks())) for rank in range(ranks())]
    return None if found == drawn else found


def group_tokens(rollouts: RolloutTokens, taught: Bool[Tensor, " B"], policy: CausalLMPolicy) -> Sequence[int]:
    """Tokens that pass through the policy for each group, if it passes alone."""

    def groups(rows: Tensor) -> list[list[int]]:
        return rows.unflatten(0, (-1, rollouts.group_size)).tolist()

    found = []
    prompts = rollouts.prompt_mask.sum(dim=1).tolist()
    for prompt, lengths, asked in zip(prompts, groups(rollouts.mask.sum(dim=1)), groups(taught), strict=True):
        completions = list(compress(lengths, asked))
        alone = Lengths(prompts=[prompt], completions=completions, owner=[0] * len(completions))
        found.append(policy.pass_tokens(alone) if completions else 0)
    return found
