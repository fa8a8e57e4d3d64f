"""How rollouts are divided: whole groups between ranks, rows into micro-batches by token budget.

Rows of a group go into one micro-batch, so that their prompt is computed once; the longest come first.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from contrastive_reasoning.distributed import even_shares, gather, gather_groups, most, ranks, this_rank, unshare
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.flops import NO_WORK, Work, work_of
from contrastive_reasoning.policies.pass_cost import Lengths
from contrastive_reasoning.rollout.batch import RolloutTokens


def rows_by_budget(
    groups: Sequence[Sequence[int]], *, tokens: Callable[[list[int]], int], budget: int
) -> list[list[int]]:
    """Rows in micro-batches of at most ``budget`` tokens; every row is in exactly one.

    A group goes whole into the micro-batch that is being filled, or begins the next. One that is too large even for a
    micro-batch of its own is split, and a row above the budget is a micro-batch by itself.

    Args:
        groups: in the order in which they are placed.
        tokens: what goes through the policy for these rows.
        budget: the most of it.
    """
    if budget < 1:
        raise ValueError(f"microbatch_tokens must be at least 1, got {budget}")
    batches: list[list[int]] = []
    for group in groups:
        whole = tokens(list(group)) <= budget
        for part in [list(group)] if whole else [[row] for row in group]:
            if batches and tokens(batches[-1] + part) <= budget:
                batches[-1] += part
            else:
                batches.append(part)
    return batches


def cut_into_parts(batches: Sequence[list[int]], count: int, *, tokens: Callable[[list[int]], int]) -> list[list[int]]:
    """The same rows in at least ``count`` micro-batches, as far as they can be cut, the largest cut first.

    Where ranks exchange something in every micro-batch all need as many.
    """
    parts = [list(batch) for batch in batches]
    while len(parts) < count and any(len(part) > 1 for part in parts):
        largest = max((i for i, part in enumerate(parts) if len(part) > 1), key=lambda i: tokens(parts[i]))
        half = (len(parts[largest]) + 1) // 2
        parts[largest : largest + 1] = [parts[largest][:half], parts[largest][half:]]
    return parts


@dataclass(frozen=True, kw_only=True)
class Microbatch:
    """Some rows of a rollout batch, each of their prompts once, without the padding that only other rows need."""

    rows: Int[Tensor, " b"]
    """Which rows of the rollout batch these are."""
    prompt_ids: Int[Tensor, "p s"]
    prompt_mask: Bool[Tensor, "p s"]
    owner: Int[Tensor, " b"]
    """Which of the prompts each row continues."""
    completion_ids: Int[Tensor, "b t"]
    mask: Bool[Tensor, "b t"]
    idle: bool = False
    """It passes through the policy only because other ranks have more micro-batches, and has no loss."""

    def log_probs(self, policy: CausalLMPolicy, temperature: float) -> Float[Tensor, "b t"]:
        """log π of the completions."""
        return policy.log_probs(*self.tensors, owner=self.owner, temperature=temperature)

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """In the order of ``CausalLMPolicy.log_probs``."""
        return self.prompt_ids, self.prompt_mask, self.completion_ids, self.mask

    def of(self, values: Tensor) -> Tensor:
        """The part of a (B,T) tensor that belongs to these rows: (b,t)."""
        return values[self.rows, : self.mask.shape[1]]

    @property
    def lengths(self) -> Lengths:
        """In tokens, without padding."""
        return Lengths(
            prompts=self.prompt_mask.sum(dim=1).tolist(),
            completions=self.mask.sum(dim=1).tolist(),
            owner=self.owner.tolist(),
        )


def microbatches(
    rollouts: RolloutTokens, policy: CausalLMPolicy, *, rows: Bool[Tensor, " B"] | None = None, max_tokens: int
) -> Iterator[Microbatch]:
    """The chosen rows of ``rollouts`` (None: all), each in one micro-batch.

    Each has at most ``max_tokens`` tokens, counted as they go through ``policy``: packed where it packs, else padded.
    A policy that always pads gains nothing from groups, so rows of like length go together instead. Every rank gets as
    many micro-batches: see ``cut_into_parts``; where a rank has too few rows for that, some are idle.
    """
    chosen = range(len(rollouts)) if rows is None else rows.nonzero()[:, 0].tolist()
    prompts, completions = rollouts.prompt_mask.sum(dim=1).tolist(), rollouts.mask.sum(dim=1).tolist()
    size = rollouts.group_size
    lengths = {row: prompts[row // size] + completions[row] for row in chosen}
    longest_first = sorted(chosen, key=lambda row: (-lengths[row], row))
    groups: dict[int, list[int]] = {}
    for row in longest_first:
        groups.setdefault(row // size if policy.plans_attention else row, []).append(row)

    def tokens(batch: list[int]) -> int:
        owners = [row // size for row in batch]
        place = {prompt: i for i, prompt in enumerate(dict.fromkeys(owners))}
        return policy.pass_tokens(
            Lengths(
                prompts=[prompts[prompt] for prompt in place],
                completions=[completions[row] for row in batch],
                owner=[place[prompt] for prompt in owners],
            )
        )

    batches = rows_by_budget(list(groups.values()), tokens=tokens, budget=max_tokens)
    count = most(len(batches))
    parts = cut_into_parts(batches, count, tokens=tokens)
    for batch in parts:
        yield select(rollouts, torch.tensor(batch, device=rollouts.mask.device))
    for _ in range(count - len(parts)):
        yield replace(select(rollouts, torch.tensor([0], device=rollouts.mask.device)), idle=True)


def select(rollouts: RolloutTokens, rows: Int[Tensor, " b"]) -> Microbatch:
    """The given rows: prompts cut on the left, completions on the right, to the longest of them."""
    prompts, owner = torch.unique(rows // rollouts.group_size, return_inverse=True)
    prompt_mask, mask = rollouts.prompt_mask[prompts], rollouts.mask[rows]
    prompt_width = max(int(prompt_mask.sum(dim=1).max()), 1)
    width = max(int(mask.sum(dim=1).max()), 1)
    return Microbatch(
        rows=rows,
        prompt_ids=rollouts.prompt_ids[prompts][:, -prompt_width:],
        prompt_mask=prompt_mask[:, -prompt_width:],
        owner=owner,
        completion_ids=rollouts.completion_ids[rows][:, :width],
        mask=mask[:, :width],
    )


@torch.no_grad()
def score(policy: CausalLMPolicy, rollouts: RolloutTokens, parts: Sequence[Microbatch]) -> Float[Tensor, "B T"]:
    """log π of the rollouts in these micro-batches, in float64; 0 elsewhere."""
    scores = torch.zeros_like(rollouts.old_log_probs, dtype=torch.float64)
    for microbatch in parts:
        log_probs = microbatch.log_probs(policy, rollouts.temperature)
        if not microbatch.idle:  # else its row is scored elsewhere, with the rounding of its own micro-batch
            scores[microbatch.rows, : log_probs.shape[1]] = log_probs.double()
    return scores


def work_of_microbatches(policy: CausalLMPolicy, parts: Sequence[Microbatch]) -> Work:
    """What one pass of ``policy`` over all of these computes, and how much of it is padding."""
    work = NO_WORK
    for lengths in (microbatch.lengths for microbatch in parts if not microbatch.idle):
        positions = policy.pass_tokens(lengths)
        work += work_of(lengths.prompts, lengths.completions, lengths.owner, positions=positions)
    return work


def balance_groups(
    rollouts: RolloutTokens,
    advantages: Float[Tensor, "B T"],
    *,
    trained: Bool[Tensor, " B"],
    policy: CausalLMPolicy,
    minibatches: int,
) -> tuple[RolloutTokens, Float[Tensor, "B t"]]:
    """Exchange whole groups between ranks, so that each trains on nearly as many tokens; rollouts and advantages.

        drawn      rank 0  ▇▇▇ ▁ ▁    rank 1  ▇▇▇ ▅ ▇▇▇      ▁ a group of equal rewards: not passed through the policy
        balanced   rank 0  ▇▇▇ ▅ ▁    rank 1  ▇▇▇ ▁ ▇▇▇      as many groups on each as before

    Ranks wait in every update for the one with most. The loss is a sum over all rows, on any rank. One process,
    and ranks whose tokens an exchange would not even out, keep their own.

    Args:
        rollouts: drawn by this rank.
        advantages: of their tokens.
        trained: rows that will pass through the policy.
        policy: counts their tokens.
        minibatches: into which the groups are cut, in their order; no group changes its mini-batch.
    """
    if ranks() == 1:
        return rollouts, advantages
    costs = unshare(gather(group_tokens(rollouts, trained, policy)))
    assigned = assign_groups(costs, minibatches)
    if assigned is None:
        return rollouts, advantages
    groups = torch.tensor(assigned[this_rank()], device=rollouts.mask.device)
    rows = (groups[:, None] * rollouts.group_size + torch.arange(rollouts.group_size, device=groups.device)).flatten()
    prompt_width, width = most(rollouts.prompt_mask.shape[1]), most(rollouts.mask.shape[1])

    def prompts(own: Tensor) -> Tensor:
        return gather_groups(pad(own, (prompt_width - own.shape[1], 0)), 1)[groups]

    def completions(own: Tensor) -> Tensor:
        return gather_groups(pad(own, (0, width - own.shape[1])), rollouts.group_size)[rows]

    balanced = RolloutTokens(
        prompt_ids=prompts(rollouts.prompt_ids),
        prompt_mask=prompts(rollouts.prompt_mask),
        completion_ids=completions(rollouts.completion_ids),
        mask=completions(rollouts.mask),
        old_log_probs=completions(rollouts.old_log_probs),
        temperature=rollouts.temperature,
        group_size=rollouts.group_size,
    )
    return balanced, completions(advantages)


def assign_groups(costs: Sequence[int], minibatches: int) -> list[list[int]] | None:
    """For every rank the groups that it trains on, mini-batch by mini-batch; None where each keeps what it drew."""
    size = len(costs) // minibatches
    assigned: list[list[int]] = [[] for _ in range(ranks())]
    for first in range(0, len(costs), size):
        for own, part in zip(assigned, even_shares(costs[first : first + size], ranks()), strict=True):
            own += [first + index for index in part]
    drawn = [list(range(rank, len(costs), ranks())) for rank in range(ranks())]
    return None if assigned == drawn else assigned


def group_tokens(rollouts: RolloutTokens, trained: Bool[Tensor, " B"], policy: CausalLMPolicy) -> list[int]:
    """Tokens that pass through the policy for each group by itself."""
    size = rollouts.group_size
    lengths, passes = rollouts.mask.sum(dim=1).tolist(), trained.tolist()
    counts = []
    for group, prompt in enumerate(rollouts.prompt_mask.sum(dim=1).tolist()):
        completions = [lengths[row] for row in range(group * size, (group + 1) * size) if passes[row]]
        alone = Lengths(prompts=[prompt], completions=completions, owner=[0] * len(completions))
        counts.append(policy.pass_tokens(alone) if completions else 0)
    return counts
