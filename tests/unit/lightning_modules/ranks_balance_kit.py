"""Rollouts of which one rank has all the long groups, moved between ranks; and GRPO where groups do move."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from contrastive_reasoning.distributed import this_rank
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.batch import RolloutTokens
from lightning_modules import grpo as grpo_module
from lightning_modules import microbatches
from tests.unit.lightning_modules import grpo_kit
from tests.unit.lightning_modules.ranks_kit import Result, grpo

GROUP = 2
PROMPTS = [[2, 3, 1, 4], [5, 1, 2, 6]]
"""Of each rank's problems, in tokens."""
COMPLETIONS = [[4, 3, 9, 9, 2, 1, 7, 8], [1, 1, 2, 1, 1, 2, 3, 1]]
TAUGHT = [[True, False, True, True, False, False, True, True], [True, True, False, False, True, True, True, True]]


def drawn(rank: int) -> tuple[RolloutTokens, Tensor, Tensor]:
    """What a rank drew, as wide as its longest: rollouts, advantages, rows that teach. Ids name rank, row and place."""
    prompts, lengths = torch.tensor(PROMPTS[rank]), torch.tensor(COMPLETIONS[rank])
    width = int(prompts.max())
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    prompt_mask = torch.arange(width) >= width - prompts[:, None]
    ids = (1000 * (rank + 1) + 100 * torch.arange(len(lengths))[:, None] + torch.arange(mask.shape[1])) * mask
    rollouts = RolloutTokens(
        prompt_ids=(10_000 * (rank + 1) + 100 * torch.arange(len(prompts))[:, None] + torch.arange(width))
        * prompt_mask,
        prompt_mask=prompt_mask,
        completion_ids=ids,
        mask=mask,
        old_log_probs=-ids.float(),
        temperature=0.5,
        group_size=GROUP,
    )
    taught = torch.tensor(TAUGHT[rank])
    return rollouts, (ids * taught[:, None]).float() / 2, taught


def plain(rollouts: RolloutTokens, advantages: Tensor) -> list[Any]:
    """Every group's prompt and, row by row, completion, log-probs and advantages, without padding."""
    groups = []
    for place, (ids, mask) in enumerate(zip(rollouts.prompt_ids, rollouts.prompt_mask, strict=True)):
        rows = range(place * GROUP, (place + 1) * GROUP)
        parts = (rollouts.completion_ids, rollouts.old_log_probs, advantages)
        groups.append(
            [ids[mask].tolist(), [[part[row][rollouts.mask[row]].tolist() for part in parts] for row in rows]]
        )
    return groups


def exchanged(policy: CausalLMPolicy, minibatches: int) -> Result:
    """What this rank had and has, and the tokens of its groups in the policy."""
    rollouts, advantages, taught = drawn(this_rank())
    moved, theirs = microbatches.balance_groups(
        rollouts, advantages, trained=taught, policy=policy, minibatches=minibatches
    )
    now = (theirs != 0).any(dim=1)
    return {
        "before": plain(rollouts, advantages),
        "after": plain(moved, theirs),
        "tokens before": list(microbatches.group_tokens(rollouts, taught, policy)),
        "tokens": list(microbatches.group_tokens(moved, now, policy)),
        "temperature": moved.temperature,
    }


def balances() -> Result:
    return {f"{count} mini-batches": exchanged(grpo_kit.policy(), count) for count in (1, 2)}


def moving(name: str) -> Result:
    """GRPO with three groups of each rank in a mini-batch, some of which teach nothing; how often groups moved."""
    moves = []

    def seen(rollouts: Any, *args: Any, **named: Any) -> Any:
        found = microbatches.balance_groups(rollouts, *args, **named)
        moves.append(found[0] is not rollouts)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo_module, "balance_groups", seen)
        return {**grpo(name, problems=12, steps=2), "moves": sum(moves)}
