"""Division of rollouts into mini-batches and micro-batches, and updates on a mini-batch.

    rollout batch ─► whole groups evened out between ranks ─► mini-batches of whole groups, an optimizer step each
                  ─► micro-batches by token budget, whose gradients add up; the longest come first

Rows of a group go into one micro-batch, so that their prompt is computed once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import InitVar, dataclass, replace

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from contrastive_reasoning.distributed import (
    even_shares,
    gather,
    gather_groups,
    most,
    ranks,
    this_rank,
    total,
    unshare,
)
from contrastive_reasoning.objectives import Correction, Objective, ObjectiveInputs
from contrastive_reasoning.objectives.base import join_metrics, token_max, token_mean
from contrastive_reasoning.objectives.ratio import token_ratio
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.pass_cost import NO_WORK, Lengths, Work, work_of
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rollout.batch import RolloutTokens

OBJECTIVE, SURPRISAL = "train/objective/", "train/rollout/surprisal"
"""Metrics with these prefixes are this rank's part of a sum over ranks."""


def rows_by_budget(
    groups: Sequence[Sequence[int]], *, tokens: Callable[[list[int]], int], budget: int
) -> list[list[int]]:
    """Divides rows into micro-batches of at most ``budget`` tokens, counted by ``tokens``; every row is in exactly one.

    A whole group is added to the current micro-batch if it fits, or else begins the next. A group above the budget is
    split into rows. A row above the budget is a micro-batch by itself.
    """
    at_least(1, microbatch_tokens=budget)
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
    """Splits the largest micro-batches until there are ``count`` of them, or none has more than one row.

    All ranks need the same number of micro-batches if they communicate in each.
    """
    parts = [list(batch) for batch in batches]
    while len(parts) < count and any(len(part) > 1 for part in parts):
        largest = max((i for i, part in enumerate(parts) if len(part) > 1), key=lambda i: tokens(parts[i]))
        half = (len(parts[largest]) + 1) // 2
        parts[largest : largest + 1] = [parts[largest][:half], parts[largest][half:]]
    return parts


@dataclass(frozen=True, kw_only=True)
class Microbatch:
    """Some rows of a rollout batch, with each of their prompts once and only the padding that these rows need."""

    rows: Int[Tensor, " b"]
    """Which rows of the rollout batch these are."""
    prompt_ids: Int[Tensor, "p s"]
    prompt_mask: Bool[Tensor, "p s"]
    owner: Int[Tensor, " b"]
    """Which of the prompts each row continues."""
    completion_ids: Int[Tensor, "b t"]
    mask: Bool[Tensor, "b t"]
    idle: bool = False
    """Whether it passes through the policy only because other ranks have more micro-batches. It has no loss."""

    @property
    def tensors(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """In the order of ``CausalLMPolicy.log_probs``."""
        return self.prompt_ids, self.prompt_mask, self.completion_ids, self.mask

    def of(self, values: Tensor) -> Tensor:
        """The part of a (B,T) tensor that belongs to these rows: (b,t)."""
        return values[self.rows, : self.mask.shape[1]]


def microbatches(
    rollouts: RolloutTokens, policy: CausalLMPolicy, *, rows: Bool[Tensor, " B"] | None = None, max_tokens: int
) -> Iterator[Microbatch]:
    """Yields the chosen rows of ``rollouts`` (None: all), each in one micro-batch.

    A micro-batch has at most ``max_tokens`` tokens, as they go through ``policy``: packed if it packs, else padded. For
    a policy that always pads, rows of similar length go together instead of groups. Every rank gets the same number of
    micro-batches, see ``cut_into_parts``; a rank with too few rows gets idle ones.
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
        log_probs = policy.log_probs(*microbatch.tensors, owner=microbatch.owner, temperature=rollouts.temperature)
        if not microbatch.idle:  # the row of an idle one is scored elsewhere, with the rounding of its own micro-batch
            scores[microbatch.rows, : log_probs.shape[1]] = log_probs.double()
    return scores


def work_of_microbatches(policy: CausalLMPolicy, parts: Sequence[Microbatch]) -> Work:
    """The work of one pass of ``policy`` over all of these, padding included."""
    work = NO_WORK
    for part in (part for part in parts if not part.idle):
        prompts, completions = part.prompt_mask.sum(dim=1).tolist(), part.mask.sum(dim=1).tolist()
        owner = part.owner.tolist()
        positions = policy.pass_tokens(Lengths(prompts=prompts, completions=completions, owner=owner))
        work += work_of(prompts, completions, owner, positions=positions)
    return work


def balance_groups(
    rollouts: RolloutTokens,
    advantages: Float[Tensor, "B T"],
    *,
    trained: Bool[Tensor, " B"],
    policy: CausalLMPolicy,
    minibatches: int,
) -> tuple[RolloutTokens, Float[Tensor, "B t"]]:
    """Exchanges whole groups between ranks, so that each trains on a similar number of tokens; rollouts and advantages.

        drawn      rank 0  ▇▇▇ ▁ ▁    rank 1  ▇▇▇ ▅ ▇▇▇      ▁ a group of equal rewards: not passed through the policy
        balanced   rank 0  ▇▇▇ ▅ ▁    rank 1  ▇▇▇ ▁ ▇▇▇      as many groups on each as before

    In every update the ranks wait for the slowest. The loss is a sum over all rows, on whichever rank. One process, and
    ranks that an exchange would not balance better, keep their own groups. No group changes its mini-batch.

    Args:
        rollouts: drawn by this rank.
        advantages: of their tokens.
        trained: rows that will pass through the policy.
        policy: counts their tokens.
        minibatches: the number of mini-batches into which the groups are cut, in their order.
    """
    if ranks() == 1:
        return rollouts, advantages
    costs = unshare(gather(group_tokens(rollouts, trained, policy)))
    size = len(costs) // minibatches
    assigned: list[list[int]] = [[] for _ in range(ranks())]
    """The groups that each rank trains on, mini-batch by mini-batch."""
    for first in range(0, len(costs), size):
        for own, part in zip(assigned, even_shares(costs[first : first + size], ranks()), strict=True):
            own += [first + index for index in part]
    if assigned == [list(range(rank, len(costs), ranks())) for rank in range(ranks())]:  # as they were drawn
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


def group_tokens(rollouts: RolloutTokens, trained: Bool[Tensor, " B"], policy: CausalLMPolicy) -> list[int]:
    """The number of tokens that pass through the policy for each group by itself."""
    size = rollouts.group_size
    lengths, passes = rollouts.mask.sum(dim=1).tolist(), trained.tolist()
    counts = []
    for group, prompt in enumerate(rollouts.prompt_mask.sum(dim=1).tolist()):
        completions = [lengths[row] for row in range(group * size, (group + 1) * size) if passes[row]]
        alone = Lengths(prompts=[prompt], completions=completions, owner=[0] * len(completions))
        counts.append(policy.pass_tokens(alone) if completions else 0)
    return counts


def rows_with_gradient(
    advantages: Float[Tensor, "B T"], *, reference: bool, among: Bool[Tensor, " B"] | None = None
) -> Bool[Tensor, " B"]:
    """Rows with an advantage that is not zero, or all rows if there is a KL term; at least one over all ranks.

    A row of zeros adds exactly nothing to the gradient, so a group of equal rewards need not pass through the policy.
    If no rank has a row, rank 0 takes its first: an optimizer with momentum steps even without a gradient.

    Args:
        advantages: of every token.
        reference: whether there is a KL term.
        among: the rows of this mini-batch; None: all.
    """
    candidates = torch.ones(len(advantages), dtype=torch.bool, device=advantages.device) if among is None else among
    rows = candidates & ((advantages != 0).any(dim=1) | reference)
    if not total(float(rows.any())) and this_rank() == 0:
        rows[int(candidates.long().argmax())] = True
    return rows


def minibatch_rows(rollouts: RolloutTokens, count: int) -> list[Bool[Tensor, " B"]]:
    """The rows of ``count`` mini-batches of whole groups, in the order of the batch.

    Raises:
        ValueError: if ``count`` does not divide the number of problems.
    """
    problems = len(rollouts.prompt_ids)
    if problems % count:
        raise ValueError(f"{problems} problems cannot be divided evenly into {count} mini-batches")
    index = torch.arange(len(rollouts), device=rollouts.mask.device) // (len(rollouts) // count)
    return [index == k for k in range(count)]


@dataclass(kw_only=True, eq=False)
class MinibatchUpdate:
    """One or more updates on the same mini-batch; each passes over all of its micro-batches.

    The old policy's log-probs are those of the first update's own pass, whose weights are still the ones that sampled.
    They equal those of a scoring pass, at no cost. The ratio is exactly 1 in that update, whatever the sampler's
    kernels and dtype. For a mini-batch that is updated after another one, they are scored beforehand.

    Metrics of the objective are means over the rows that are trained on. ``ratio_mean`` and ``ratio_max`` of the first
    update are raw: each token's ratio to the sampler's log-prob.
    """

    objective: Objective
    correction: Correction
    """Weight of each token's loss for the mismatch between sampler and policy."""
    rollouts: RolloutTokens
    """The whole rollout batch."""
    advantages: Float[Tensor, "B T"]
    among: Bool[Tensor, " B"]
    """The rows of this mini-batch; the loss is a mean over them on all ranks, whether trained on or not."""
    trained: Bool[Tensor, " B"]
    """Those of them that pass through the policy."""
    microbatches: Sequence[Microbatch]
    """The trained rows, divided."""
    budget: int
    """The maximum number of tokens in a micro-batch."""
    ref_log_probs: Float[Tensor, "B T"] | None
    scored: InitVar[Float[Tensor, "B T"] | None]
    """The old policy's log-probs; None: taken from the first update's pass."""

    def __post_init__(self, scored: Tensor | None) -> None:
        self.trained_tokens = self.rollouts.mask & self.trained[:, None]
        self.token_count = total(float(self.trained_tokens.sum()))
        own = self.rollouts.mask & self.among[:, None]
        rows, tokens = total(float(own.any(dim=1).sum())), total(float(own.sum()))
        self.weights = self.objective.weights(own, rows=max(rows, 1.0), tokens=max(tokens, 1.0))
        self.sampled_tokens = total(float(self.rollouts.mask.sum()))
        self.keeps_first_pass = scored is None
        # float64 holds the log-probs of every dtype exactly
        self.old_log_probs = torch.zeros_like(self.rollouts.old_log_probs, dtype=torch.float64)
        if scored is not None:
            self.old_log_probs += scored
        self.updates: list[dict[str, Tensor]] = []
        self._parts: list[Mapping[str, Tensor]] = []

    def loss(
        self, microbatch: Microbatch, log_probs: Float[Tensor, "b t"], full_kl: Float[Tensor, "b t"] | None = None
    ) -> Tensor:
        """The micro-batch's part of the update's loss; ``full_kl`` is given if the objective has that term."""
        if microbatch.idle:
            return log_probs.sum() * 0.0  # with a graph: this rank takes part in the exchanges of the backward pass
        first = not self.updates
        if first and self.keeps_first_pass:
            self.old_log_probs[microbatch.rows, : log_probs.shape[1]] = log_probs.detach().double()
        old, sampled = microbatch.of(self.old_log_probs), microbatch.of(self.rollouts.old_log_probs)
        correction = self.correction(old, sampled.double(), microbatch.mask)
        inputs = ObjectiveInputs(
            log_probs=log_probs,
            old_log_probs=old.to(log_probs.dtype),
            ref_log_probs=(
                None if self.ref_log_probs is None else microbatch.of(self.ref_log_probs).to(log_probs.dtype)
            ),
            advantages=microbatch.of(self.advantages),
            full_kl=full_kl,
            mask=microbatch.mask,
            weights=microbatch.of(self.weights) * correction.to(self.weights.dtype),
            tokens=self.token_count,
        )
        outputs = self.objective(inputs)
        metrics = {**outputs.metrics, "loss": outputs.loss.detach().double()}
        if first:
            ratio = token_ratio(log_probs.detach(), sampled.to(log_probs.dtype), inputs.mask)
            metrics |= {"ratio_mean": token_mean(ratio, inputs), "ratio_max": token_max(ratio, inputs)}
        self._parts.append(metrics)
        return outputs.loss

    def restart(self, microbatches: Sequence[Microbatch], budget: int) -> None:
        """Discards the micro-batches of this update so far; it continues with these smaller ones."""
        self.microbatches, self.budget = microbatches, budget
        self._parts = []

    def update_loss(self) -> Tensor | None:
        """Loss of this update so far, on this rank; None where all its micro-batches are idle."""
        return torch.stack([part["loss"] for part in self._parts]).sum() if self._parts else None

    def end_update(self) -> None:
        """Ends an update; call it after the optimizer's step."""
        self.updates.append(join_metrics(self._parts) if self._parts else {})
        self._parts = []

    def metrics(self) -> dict[str, float]:
        """Means over the updates (the largest of a maximum), and the gap of the sampler's log-probs to the policy's."""
        names = dict.fromkeys(name for update in self.updates for name in update)  # ratio_… may be in the first alone
        updates = {name: torch.stack([one[name] for one in self.updates if name in one]) for name in names}
        gap = (self.rollouts.old_log_probs - self.old_log_probs).abs() * self.trained_tokens
        return {
            **{
                f"{OBJECTIVE}{name}": (values.max() if name.endswith("_max") else values.mean()).item()
                for name, values in updates.items()
            },
            "train/rollout/log_prob_gap": gap.max().item(),
            SURPRISAL: -self.rollouts.old_log_probs[self.rollouts.mask].double().sum().item() / self.sampled_tokens,
        }


def merge_metrics(minibatches: Sequence[MinibatchUpdate]) -> dict[str, float]:
    """Metrics of all mini-batches: the largest of a maximum, else means. One that is idle on a rank adds nothing."""
    columns = [minibatch.metrics() for minibatch in minibatches]
    known = {name: [column[name] for column in columns if name in column] for column in columns for name in column}
    return {
        name: max(values) if name.endswith(("_max", "_gap")) else sum(values) / len(minibatches)
        for name, values in known.items()
    }
