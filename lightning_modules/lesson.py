"""What one rollout batch teaches: all that the objective needs besides the new log-probs, for any micro-batch of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.objectives import Objective, ObjectiveInputs, ObjectiveOutputs
from contrastive_reasoning.objectives.metrics import joined
from contrastive_reasoning.rollout.batch import RolloutBatch
from lightning_modules.microbatches import Microbatch


def rows_that_teach(advantages: Float[Tensor, "B T"], *, reference: bool) -> Bool[Tensor, " B"]:
    """Rows with a gradient: some advantage is not zero, or a KL term pulls on every row; at least the first row.

    A row of zeros adds exactly nothing to the gradient, so a group of equals need not pass through the policy. One row
    always does: an optimizer with momentum steps in every update, whatever its gradient.
    """
    taught = torch.full((len(advantages),), reference, device=advantages.device) | (advantages != 0).any(dim=1)
    taught[0] |= not bool(taught.any())
    return taught


class Lesson:
    """Several updates on one rollout batch; each update is one pass over all of its micro-batches.

    The log-probs of the old policy are those of the first update's own pass, whose weights are still the ones that
    sampled. So the ratio is exactly 1 in that update, whatever the sampler's kernels and dtype, at no cost. Metrics of
    the objective are means over the rows that were taught.
    """

    def __init__(
        self,
        *,
        objective: Objective,
        rollouts: RolloutBatch,
        advantages: Float[Tensor, "B T"],
        taught: Bool[Tensor, " B"],
        ref_log_probs: Float[Tensor, "B T"] | None,
    ) -> None:
        self.objective = objective
        self.rollouts = rollouts
        self.advantages = advantages
        self.ref_log_probs = ref_log_probs
        self.seen = rollouts.mask & taught[:, None]
        self.tokens = float(self.seen.sum())
        # what the loss is a mean over: all rollouts, taught or not
        rows, tokens = float(rollouts.mask.any(dim=1).sum()), float(rollouts.mask.sum())
        self.weights = objective.weights(rollouts.mask, rows=max(rows, 1.0), tokens=max(tokens, 1.0))
        # float64 holds the log-probs of every dtype exactly
        self.old_log_probs = torch.zeros_like(rollouts.old_log_probs, dtype=torch.float64)
        self.updates: list[dict[str, Tensor]] = []
        self._parts: list[Mapping[str, Tensor]] = []

    def loss(self, microbatch: Microbatch, log_probs: Float[Tensor, "b t"]) -> Tensor:
        """The micro-batch's share in the loss of the update."""
        if not self.updates:
            self.old_log_probs[microbatch.rows, : log_probs.shape[1]] = log_probs.detach().double()
        outputs = self.objective(self.inputs(microbatch, log_probs))
        self._parts.append(_with_loss(outputs))
        return outputs.loss

    def inputs(self, microbatch: Microbatch, log_probs: Float[Tensor, "b t"]) -> ObjectiveInputs:
        return ObjectiveInputs(
            log_probs=log_probs,
            old_log_probs=microbatch.of(self.old_log_probs).to(log_probs.dtype),
            ref_log_probs=None if self.ref_log_probs is None else microbatch.of(self.ref_log_probs),
            advantages=microbatch.of(self.advantages),
            mask=microbatch.mask,
            weights=microbatch.of(self.weights),
            tokens=self.tokens,
        )

    def end_update(self) -> None:
        """All micro-batches were seen and the policy has changed."""
        self.updates.append(joined(self._parts))
        self._parts = []

    def metrics(self) -> dict[str, float]:
        """Means over the updates (of maxima the largest), and how far the sampler's log-probs lay from the policy's."""
        gap = (self.rollouts.old_log_probs - self.old_log_probs).abs() * self.seen
        return {
            **{f"train/objective/{name}": value for name, value in over_updates(self.updates).items()},
            "train/rollout/log_prob_gap": gap.max().item(),
            "train/rollout/surprisal": -self.rollouts.old_log_probs[self.rollouts.mask].mean().item(),
        }


def over_updates(updates: Sequence[Mapping[str, Tensor]]) -> dict[str, float]:
    columns = {name: torch.stack([update[name] for update in updates]) for name in updates[0]}
    return {name: (c.max() if name.endswith("_max") else c.mean()).item() for name, c in columns.items()}


def _with_loss(outputs: ObjectiveOutputs) -> dict[str, Tensor]:
    return {**outputs.metrics, "loss": outputs.loss.detach().double()}
