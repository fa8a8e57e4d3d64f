"""The updates on one mini-batch: all that the objective needs besides the new log-probs, for any of its micro-batches.

A rollout batch is cut into mini-batches of whole groups, an optimizer step each. A mini-batch is cut into
micro-batches, whose gradients add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.distributed import this_rank, total
from contrastive_reasoning.objectives import Correction, Objective, ObjectiveInputs
from contrastive_reasoning.objectives.base import join_metrics, token_max, token_mean
from contrastive_reasoning.objectives.ratio import token_ratio
from contrastive_reasoning.rollout.batch import RolloutTokens
from lightning_modules.microbatches import Microbatch

OBJECTIVE, SURPRISAL = "train/objective/", "train/rollout/surprisal"
"""Metrics with these prefixes are this rank's part of a sum over ranks."""


def rows_with_gradient(
    advantages: Float[Tensor, "B T"], *, reference: bool, among: Bool[Tensor, " B"] | None = None
) -> Bool[Tensor, " B"]:
    """Rows with an advantage that is not zero, or all where a KL term pulls on every row; at least one over all ranks.

    A row of zeros adds exactly nothing to the gradient, so a group of equal rewards need not pass through the policy.
    Where no rank has a row, rank 0 takes its first: an optimizer with momentum steps whatever the gradient.

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
        ValueError: where ``count`` does not divide the number of problems.
    """
    problems = len(rollouts.prompt_ids)
    if problems % count:
        raise ValueError(f"{problems} problems cannot be divided evenly into {count} mini-batches")
    index = torch.arange(len(rollouts), device=rollouts.mask.device) // (len(rollouts) // count)
    return [index == k for k in range(count)]


class MinibatchUpdate:
    """One or more updates on the same mini-batch; each passes over all of its micro-batches.

    The old policy's log-probs are those of the first update's own pass, whose weights are still the ones that sampled:
    the same as a scoring pass would give, at no cost, and the ratio is exactly 1 in that update, whatever the sampler's
    kernels and dtype. A mini-batch that is updated after another one gets them scored beforehand.

    Metrics of the objective are means over the rows that are trained on; ``ratio_mean`` and ``ratio_max`` of the first
    update are raw, each token's against the sampler's log-prob.

    Args:
        objective: the loss.
        correction: weight of each token's loss for the mismatch between sampler and policy.
        rollouts: the whole rollout batch.
        advantages: of all its tokens.
        among: the rows of this mini-batch; the loss is a mean over them.
        trained: the rows of it that pass through the policy.
        microbatches: these rows.
        budget: tokens of a micro-batch at most.
        ref_log_probs: of all rollouts; None without a reference.
        old_log_probs: of all rollouts, scored; None: taken from the first update's pass.
    """

    def __init__(
        self,
        *,
        objective: Objective,
        correction: Correction,
        rollouts: RolloutTokens,
        advantages: Float[Tensor, "B T"],
        among: Bool[Tensor, " B"],
        trained: Bool[Tensor, " B"],
        microbatches: Sequence[Microbatch],
        budget: int,
        ref_log_probs: Float[Tensor, "B T"] | None,
        old_log_probs: Float[Tensor, "B T"] | None,
    ) -> None:
        self.objective = objective
        self.correction = correction
        self.rollouts = rollouts
        self.advantages = advantages
        self.trained = trained
        self.microbatches = microbatches
        self.budget = budget
        self.ref_log_probs = ref_log_probs
        self.trained_tokens = rollouts.mask & trained[:, None]
        self.token_count = total(float(self.trained_tokens.sum()))
        # the loss is a mean over all rollouts of the mini-batch, trained on or not, on all ranks
        own = rollouts.mask & among[:, None]
        rows, tokens = total(float(own.any(dim=1).sum())), total(float(own.sum()))
        self.weights = objective.weights(own, rows=max(rows, 1.0), tokens=max(tokens, 1.0))
        self.sampled_tokens = total(float(rollouts.mask.sum()))
        self.keeps_first_pass = old_log_probs is None
        # float64 holds the log-probs of every dtype exactly
        self.old_log_probs = torch.zeros_like(rollouts.old_log_probs, dtype=torch.float64)
        if old_log_probs is not None:
            self.old_log_probs += old_log_probs
        self.updates: list[dict[str, Tensor]] = []
        self._parts: list[Mapping[str, Tensor]] = []

    def loss(
        self, microbatch: Microbatch, log_probs: Float[Tensor, "b t"], full_kl: Float[Tensor, "b t"] | None = None
    ) -> Tensor:
        """The micro-batch's part of the update's loss; ``full_kl`` where the objective has that term."""
        if microbatch.idle:
            return log_probs.sum() * 0.0
        first = not self.updates
        if first and self.keeps_first_pass:
            self.old_log_probs[microbatch.rows, : log_probs.shape[1]] = log_probs.detach().double()
        inputs = self.inputs(microbatch, log_probs, full_kl)
        outputs = self.objective(inputs)
        metrics = {**outputs.metrics, "loss": outputs.loss.detach().double()}
        if first:
            sampled = microbatch.of(self.rollouts.old_log_probs).to(log_probs.dtype)
            ratio = token_ratio(log_probs.detach(), sampled, inputs.mask)
            metrics |= {"ratio_mean": token_mean(ratio, inputs), "ratio_max": token_max(ratio, inputs)}
        self._parts.append(metrics)
        return outputs.loss

    def inputs(
        self, microbatch: Microbatch, log_probs: Float[Tensor, "b t"], full_kl: Float[Tensor, "b t"] | None
    ) -> ObjectiveInputs:
        old = microbatch.of(self.old_log_probs)
        correction = self.correction(old, microbatch.of(self.rollouts.old_log_probs).double(), microbatch.mask)
        reference = None if self.ref_log_probs is None else microbatch.of(self.ref_log_probs).to(log_probs.dtype)
        return ObjectiveInputs(
            log_probs=log_probs,
            old_log_probs=old.to(log_probs.dtype),
            ref_log_probs=reference,
            advantages=microbatch.of(self.advantages),
            full_kl=full_kl,
            mask=microbatch.mask,
            weights=microbatch.of(self.weights) * correction.to(self.weights.dtype),
            tokens=self.token_count,
        )

    def restart(self, microbatches: Sequence[Microbatch], budget: int) -> None:
        """Discard what this update has seen so far; it continues with these smaller micro-batches."""
        self.microbatches = microbatches
        self.budget = budget
        self._parts = []

    def update_loss(self) -> Tensor | None:
        """Loss of this update so far, on this rank; None where all its micro-batches are idle."""
        return torch.stack([part["loss"] for part in self._parts]).sum() if self._parts else None

    def end_update(self) -> None:
        """Called after the optimizer's step."""
        self.updates.append(join_metrics(self._parts) if self._parts else {})
        self._parts = []

    def metrics(self) -> dict[str, float]:
        """Means over the updates (of a maximum the largest), and the sampler's distance from the policy's log-probs."""
        updates = {name: torch.stack([update[name] for update in self.updates]) for name in self.updates[0]}
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
    """Metrics of all mini-batches: of a maximum the largest, else the mean; one that is idle on a rank adds nothing."""
    columns = [minibatch.metrics() for minibatch in minibatches]
    known = {name: [column[name] for column in columns if name in column] for column in columns for name in column}
    return {
        name: max(values) if name.endswith(("_max", "_gap")) else sum(values) / len(minibatches)
        for name, values in known.items()
    }
