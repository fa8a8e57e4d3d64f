"""What one rollout batch teaches: all that the objective needs besides the new log-probs, for any micro-batch of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.distributed import this_rank, total
from contrastive_reasoning.objectives import Correction, Objective, ObjectiveInputs, ObjectiveOutputs
from contrastive_reasoning.objectives.metrics import joined, token_max, token_mean
from contrastive_reasoning.objectives.ratio import token_ratio
from contrastive_reasoning.rollout.batch import RolloutTokens
from lightning_modules.microbatches import Microbatch


def rows_that_teach(
    advantages: Float[Tensor, "B T"], *, reference: bool, among: Bool[Tensor, " B"] | None = None
) -> Bool[Tensor, " B"]:
    """Rows with a gradient: some advantage is not zero, or a KL term pulls on every row; at least one of all ranks'.

    A row of zeros adds exactly nothing to the gradient, so a group of equals need not pass through the policy. Where no
    rank has another, the first of rank 0 does: an optimizer with momentum steps in every update, whatever its gradient.

    Args:
        advantages: of every token.
        reference: whether there is a KL term.
        among: the rows of this update; None: all.
    """
    asked = torch.ones(len(advantages), dtype=torch.bool, device=advantages.device) if among is None else among
    taught = asked & ((advantages != 0).any(dim=1) | reference)
    if not total(float(taught.any())) and this_rank() == 0:
        taught[int(asked.long().argmax())] = True
    return taught


def minibatch_rows(rollouts: RolloutTokens, count: int) -> list[Bool[Tensor, " B"]]:
    """The rows of ``count`` mini-batches of whole groups, in the order of the batch.

    Raises:
        ValueError: where the problems cannot be shared out evenly.
    """
    problems = len(rollouts.prompt_ids)
    if problems % count:
        raise ValueError(f"{problems} problems cannot be shared out evenly over {count} mini-batches")
    place = torch.arange(len(rollouts), device=rollouts.mask.device) // (len(rollouts) // count)
    return [place == k for k in range(count)]


OBJECTIVE, SURPRISAL = "train/objective/", "train/rollout/surprisal"
"""Metrics that begin so are the rank's part of a sum over ranks."""


class Lesson:
    """Several updates on one mini-batch of a rollout batch; each is one pass over all of its micro-batches.

    The log-probs of the old policy are those of the first update's own pass, whose weights are still the ones that
    sampled: the same as a scoring pass would give, at no cost, and the ratio is exactly 1 in that update, whatever the
    sampler's kernels and dtype. A lesson whose turn comes after another's update has them given.

    Metrics of the objective are means over the rows taught; ``ratio_mean`` and ``ratio_max`` of the first update are
    raw, each token's against the sampler's log-prob.

    Args:
        objective: the loss.
        correction: what each token's loss is multiplied by because the sampler drew it.
        rollouts: the whole batch.
        advantages: of all its tokens.
        among: the rows of this mini-batch; the loss is a mean over them.
        taught: those that pass through the policy.
        split: their micro-batches.
        budget: the tokens that each of these may have.
        ref_log_probs: of all rollouts; None without a reference.
        old_log_probs: of all rollouts, scored; None: those of the first update's pass.
    """

    def __init__(
        self,
        *,
        objective: Objective,
        correction: Correction,
        rollouts: RolloutTokens,
        advantages: Float[Tensor, "B T"],
        among: Bool[Tensor, " B"],
        taught: Bool[Tensor, " B"],
        split: Sequence[Microbatch],
        budget: int,
        ref_log_probs: Float[Tensor, "B T"] | None,
        old_log_probs: Float[Tensor, "B T"] | None,
    ) -> None:
        self.objective = objective
        self.correction = correction
        self.rollouts = rollouts
        self.advantages = advantages
        self.taught = taught
        self.split = split
        self.budget = budget
        self.ref_log_probs = ref_log_probs
        self.seen = rollouts.mask & taught[:, None]
        self.tokens = total(float(self.seen.sum()))
        # what the loss is a mean over: all rollouts of the mini-batch, taught or not, on all ranks
        own = rollouts.mask & among[:, None]
        rows, tokens = total(float(own.any(dim=1).sum())), total(float(own.sum()))
        self.weights = objective.weights(own, rows=max(rows, 1.0), tokens=max(tokens, 1.0))
        self.sampled = total(float(rollouts.mask.sum()))
        self.given = old_log_probs is not None
        # float64 holds the log-probs of every dtype exactly
        self.scored = torch.zeros_like(rollouts.old_log_probs, dtype=torch.float64)
        if old_log_probs is not None:
            self.scored += old_log_probs
        self.updates: list[dict[str, Tensor]] = []
        self._parts: list[Mapping[str, Tensor]] = []

    def loss(
        self, microbatch: Microbatch, log_probs: Float[Tensor, "b t"], full_kl: Float[Tensor, "b t"] | None = None
    ) -> Tensor:
        """The micro-batch's share in the loss of the update; ``full_kl`` where the objective has that term."""
        if microbatch.idle:
            return log_probs.sum() * 0.0
        if not self.updates and not self.given:
            self.scored[microbatch.rows, : log_probs.shape[1]] = log_probs.detach().double()
        inputs = self.inputs(microbatch, log_probs, full_kl)
        outputs = self.objective(inputs)
        raw = {} if self.updates else self.raw_ratios(microbatch, inputs)
        self._parts.append({**_with_loss(outputs), **raw})
        return outputs.loss

    def raw_ratios(self, microbatch: Microbatch, inputs: ObjectiveInputs) -> dict[str, Tensor]:
        sampled = microbatch.of(self.rollouts.old_log_probs).to(inputs.log_probs.dtype)
        ratio = token_ratio(inputs.log_probs.detach(), sampled, inputs.mask)
        return {"ratio_mean": token_mean(ratio, inputs), "ratio_max": token_max(ratio, inputs)}

    def inputs(
        self, microbatch: Microbatch, log_probs: Float[Tensor, "b t"], full_kl: Float[Tensor, "b t"] | None
    ) -> ObjectiveInputs:
        old = microbatch.of(self.scored)
        correction = self.correction(old, microbatch.of(self.rollouts.old_log_probs).double(), microbatch.mask)
        return ObjectiveInputs(
            log_probs=log_probs,
            old_log_probs=old.to(log_probs.dtype),
            ref_log_probs=self._ref_of(microbatch, log_probs),
            advantages=microbatch.of(self.advantages),
            full_kl=full_kl,
            mask=microbatch.mask,
            weights=microbatch.of(self.weights) * correction.to(self.weights.dtype),
            tokens=self.tokens,
        )

    def _ref_of(self, microbatch: Microbatch, like: Tensor) -> Float[Tensor, "b t"] | None:
        return None if self.ref_log_probs is None else microbatch.of(self.ref_log_probs).to(like.dtype)

    def begin_again(self, split: Sequence[Microbatch], budget: int) -> None:
        """Forget what was seen of this update, and go through these micro-batches instead."""
        self.split = split
        self.budget = budget
        self._parts = []

    def update_loss(self) -> Tensor | None:
        """Of the micro-batches seen in this update, on this rank; None where none of them teaches."""
        return torch.stack([part["loss"] for part in self._parts]).sum() if self._parts else None

    def end_update(self) -> None:
        """All micro-batches were seen and the policy has changed."""
        self.updates.append(joined(self._parts) if self._parts else {})
        self._parts = []

    def metrics(self) -> dict[str, float]:
        """Means over the updates (of maxima the largest), and how far the sampler's log-probs lay from the policy's."""
        gap = (self.rollouts.old_log_probs - self.scored).abs() * self.seen
        return {
            **{f"{OBJECTIVE}{name}": value for name, value in over_updates(self.updates).items()},
            "train/rollout/log_prob_gap": gap.max().item(),
            SURPRISAL: -self.rollouts.old_log_probs[self.rollouts.mask].double().sum().item() / self.sampled,
        }


def over_updates(updates: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    columns = {name: torch.stack([update[name] for update in updates]) for name in updates[0]}
    return {name: (c.max() if name.endswith("_max") else c.mean()).item() for name, c in columns.items()}


def lesson_metrics(lessons: Sequence[Lesson]) -> dict[str, float]:
    """The metrics of all mini-batches: of maxima the largest, else the mean; a rank's idle ones add nothing to it."""
    columns = [lesson.metrics() for lesson in lessons]
    known = {name: [column[name] for column in columns if name in column] for column in columns for name in column}
    return {
        name: max(values) if name.endswith(("_max", "_gap")) else sum(values) / len(lessons)
        for name, values in known.items()
    }


def _with_loss(outputs: ObjectiveOutputs) -> dict[str, Tensor]:
    return {**outputs.metrics, "loss": outputs.loss.detach().double()}
