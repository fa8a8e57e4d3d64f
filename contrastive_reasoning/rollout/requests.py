"""What writes completions, and what it is asked for: prompts in tokens, and how long each completion may get."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.sampling import Sampling, Seed
from contrastive_reasoning.tasks.base import Problem

Written = Callable[[int, str], None]
"""Called once for each completion that has ended, with its row in the batch and its text."""


@runtime_checkable
class RolloutEngine(Protocol):
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
        """``group_size`` completions of each problem, prompt-major; the same for the same seed and weights.

        With ``pooled`` the batch also holds the mean last hidden state of each completion, its last token included.
        With ``prefixes``, one for each problem, completions are continued: the tokens of a prefix are read behind the
        prompt and stand in ``prompt_ids``, the completions of the batch are what follows, up to what the prefix leaves
        of ``max_tokens``. An empty prefix is the same as none.
        ``written`` is called once for each completion, in any order, on the calling thread.

        Raises ValueError for no problems, a group size below 1, a prompt that does not fit the context, or a prefix
        that leaves nothing to write.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Requests:
    """B = P·G completions to write, prompt-major."""

    prompt_ids: Int[Tensor, "P S"]
    """Left-padded; the prefix of a completion that is continued stands behind its prompt."""
    prompt_mask: Bool[Tensor, "P S"]
    limits: Int[Tensor, " P"]
    """Tokens a completion may have: what was asked for, or what the context leaves."""
    group_size: int
    prefixes: Sequence[Sequence[int]] = ()
    """What the completions of each prompt begin with, where they are continued."""

    def __len__(self) -> int:
        return len(self.prompt_ids) * self.group_size

    @property
    def begun(self) -> list[Sequence[int]]:
        """For each row the tokens that its completion begins with."""
        return [prefix for prefix in self.prefixes or [()] * len(self.prompt_ids) for _ in range(self.group_size)]

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


def encode(
    policy: CausalLMPolicy,
    problems: Sequence[Problem],
    *,
    group_size: int,
    max_tokens: int,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> Requests:
    """Encode the prompts of some problems, and what their completions begin with.

    Raises ValueError for no problems, a group size below 1, a prompt without tokens or too long for the context, or a
    prefix that has ended or leaves nothing of ``max_tokens``.
    """
    if not problems:
        raise ValueError("no problems were given: rollouts need at least one")
    if group_size < 1:
        raise ValueError(f"group_size must be at least 1, got {group_size}")
    ids, mask = policy.encode_prompts([problem.prompt for problem in problems])
    for problem, length in zip(problems, mask.sum(1).tolist(), strict=True):
        if not length:
            raise ValueError(f"the prompt of problem {problem.id} has no tokens: there is nothing to continue")
    begun = [()] * len(problems) if prefixes is None else prefixes
    _check_prefixes(policy, problems, begun, max_tokens)
    ids, mask = _continued(ids, mask, begun, policy.pad_token_id)
    lengths = mask.sum(1)
    for problem, length in zip(problems, lengths.tolist(), strict=True):
        if length >= policy.max_length:
            raise ValueError(
                f"problem {problem.id}: its prompt of {length} tokens leaves no room for a completion "
                f"in the policy's context of {policy.max_length} tokens"
            )
    left = torch.tensor([max_tokens - len(prefix) for prefix in begun], device=ids.device)
    limits = (policy.max_length - lengths).minimum(left)
    return Requests(prompt_ids=ids, prompt_mask=mask, limits=limits, group_size=group_size, prefixes=begun)


def _check_prefixes(
    policy: CausalLMPolicy, problems: Sequence[Problem], prefixes: Sequence[Sequence[int]], max_tokens: int
) -> None:
    if len(prefixes) != len(problems):
        raise ValueError(f"prefixes are one for each problem: got {len(prefixes)} for {len(problems)} problems")
    for problem, prefix in zip(problems, prefixes, strict=True):
        if len(prefix) >= max_tokens:
            raise ValueError(
                f"problem {problem.id}: a prefix of {len(prefix)} tokens leaves nothing of max_tokens={max_tokens}"
            )
        if not set(policy.eos_token_ids).isdisjoint(prefix):
            raise ValueError(f"problem {problem.id}: a prefix that holds an end token cannot be continued")


def _continued(
    ids: Int[Tensor, "P s"], mask: Bool[Tensor, "P s"], prefixes: Sequence[Sequence[int]], pad_token_id: int
) -> tuple[Int[Tensor, "P S"], Bool[Tensor, "P S"]]:
    """Each prompt with its prefix behind it, left-padded."""
    if not any(prefixes):
        return ids, mask
    prompts = [row[there] for row, there in zip(ids, mask, strict=True)]
    rows = [torch.cat([prompt, prompt.new_tensor(prefix)]) for prompt, prefix in zip(prompts, prefixes, strict=True)]
    padded = pad_sequence(rows, batch_first=True, padding_value=pad_token_id, padding_side="left")
    return padded, pad_sequence([torch.ones_like(row).bool() for row in rows], batch_first=True, padding_side="left")
