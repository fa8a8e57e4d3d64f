"""What an engine is asked for: prompts in tokens, how long each completion may get, and rows cut to a token budget."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.tasks.base import Problem


@dataclass(frozen=True, kw_only=True)
class Requests:
    """B = P·G completions to write, prompt-major."""

    prompt_ids: Int[Tensor, "P S"]
    """Left-padded."""
    prompt_mask: Bool[Tensor, "P S"]
    limits: Int[Tensor, " P"]
    """Tokens a completion may have: what was asked for, or what the context leaves."""
    group_size: int

    def __len__(self) -> int:
        return len(self.prompt_ids) * self.group_size

    def chunks(self, max_batch_tokens: int) -> Iterator[range]:
        """Rows in order, in runs whose (longest prompt + longest completion) · rows stays within the budget."""
        needs = (self.prompt_mask.sum(1) + self.limits).tolist()
        start, widest = 0, 0
        for row in range(len(self)):
            widest = max(widest, needs[row // self.group_size])
            if row > start and widest * (row + 1 - start) > max_batch_tokens:
                yield range(start, row)
                start, widest = row, needs[row // self.group_size]
        yield range(start, len(self))

    def prompts_of(self, rows: range) -> tuple[Int[Tensor, "p s"], Bool[Tensor, "p s"], Int[Tensor, " b"]]:
        """The distinct prompts of some rows, cut to the longest of them, and for each row the index of its prompt."""
        first, last = rows.start // self.group_size, (rows.stop - 1) // self.group_size
        mask = self.prompt_mask[first : last + 1]
        width = int(mask.sum(1).max())
        owner = torch.arange(rows.start, rows.stop, device=mask.device) // self.group_size - first
        return self.prompt_ids[first : last + 1, -width:], mask[:, -width:], owner


def encode(policy: CausalLMPolicy, problems: Sequence[Problem], *, group_size: int, max_tokens: int) -> Requests:
    """Encode the prompts of some problems.

    Raises:
        ValueError: for no problems, a group size below 1, or a prompt without tokens or too long for the context.
    """
    if not problems:
        raise ValueError("no problems were given: rollouts need at least one")
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, got {group_size}")
    ids, mask = policy.encode_prompts([problem.prompt for problem in problems])
    for problem, length in zip(problems, mask.sum(1).tolist(), strict=True):
        if not length:
            raise ValueError(f"the prompt of problem {problem.id} has no tokens: there is nothing to continue")
    lengths = mask.sum(1)
    for problem, length in zip(problems, lengths.tolist(), strict=True):
        if length >= policy.max_length:
            raise ValueError(
                f"problem {problem.id}: its prompt of {length} tokens leaves no room for a completion "
                f"in the policy's context of {policy.max_length} tokens"
            )
    limits = (policy.max_length - lengths).clamp(max=max_tokens)
    return Requests(prompt_ids=ids, prompt_mask=mask, limits=limits, group_size=group_size)
