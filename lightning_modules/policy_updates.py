"""From advantages to weights: the optimizer's steps that a rollout batch is worth."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import TypeVar, cast

from lightning import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor

from contrastive_reasoning.objectives import Correction, Objective, needs_full_kl
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, log_probs_and_full_kl
from contrastive_reasoning.policies.device_memory import let_go
from contrastive_reasoning.policies.flops import NO_WORK
from contrastive_reasoning.rollout.batch import RolloutTokens
from lightning_modules.balance import balanced
from lightning_modules.lesson import Lesson, minibatch_rows, rows_that_teach
from lightning_modules.memory import out_of_memory
from lightning_modules.microbatches import Microbatch, microbatches, work_of_split
from lightning_modules.not_finite import require_finite
from lightning_modules.optim import AdamW, backward_all, clipped_step
from lightning_modules.passes import log_probs, scores
from lightning_modules.reference import Reference

T = TypeVar("T")

OPTIMIZER = "train/optimizer/"


class PolicyUpdates(LightningModule):
    """The part of GRPO that turns advantages into optimizer steps; what it needs is set by who extends it."""

    policy: CausalLMPolicy
    reference: Reference | None
    objective: Objective
    correction: Correction
    optimizer: AdamW
    updates_per_rollout: int
    minibatches_per_rollout: int
    microbatch_tokens: int
    gradient_clip: float | None
    rollout_step: int
    warmup_steps: int
    work = NO_WORK
    """What passed through the policy, forward and backward, in the last step."""

    @property
    def full_kl(self) -> bool:
        """Whether the KL to the reference is over the whole vocabulary, not estimated from the sampled tokens."""
        return self.reference is not None and needs_full_kl(self.objective)

    def learn(self, lessons: Sequence[Lesson]) -> dict[str, float]:
        """Every update of a rollout batch; what is worth logging of the last optimizer step.

        Raises:
            NotFinite: on every rank, where an update's loss or gradient is not finite; those before it were taken.
        """
        steps: dict[str, float] = {}
        updates = [lesson for _ in range(self.updates_per_rollout) for lesson in lessons]
        for number, lesson in enumerate(updates, start=1):
            self.within_memory(partial(self.backward_of, lesson))
            self.work += work_of_split(self.policy, lesson.split)
            steps = self.optimizer_step_of_update(lesson, (number, len(updates)))
            lesson.end_update()
        return steps

    def backward_of(self, lesson: Lesson) -> None:
        """The gradient of a mini-batch, in micro-batches of the budget that is in force now."""
        if lesson.budget > self.microbatch_tokens:  # cut before another, or this one, was found not to fit
            lesson.begin_again(list(self.split(lesson.rollouts, lesson.taught)), self.microbatch_tokens)
        backward_all(self, [partial(self.loss, lesson, microbatch) for microbatch in lesson.split])

    def within_memory(self, passes: Callable[[], T]) -> T:
        """What ``passes`` gives. Where a micro-batch does not fit into memory the budget is halved, for good."""
        while True:
            try:
                return passes()
            except RuntimeError as error:
                if not self.may_halve(error):
                    raise
            let_go()  # only here: the error had held on to the pass
            self.policy.zero_grad(set_to_none=True)
            self.microbatch_tokens //= 2
            rank_zero_warn(f"a micro-batch does not fit into memory: microbatch_tokens is {self.microbatch_tokens} now")

    def may_halve(self, error: RuntimeError) -> bool:
        """Whether fewer tokens at once may help, and nobody but the parameters holds gradients of the pass.

        On several ranks the others are in an exchange already; DeepSpeed and DDP have sums of their own, on one device
        too, which would keep what was added before the pass failed.
        """
        alone = isinstance(self.trainer.strategy, SingleDeviceStrategy)
        return out_of_memory(error) and self.microbatch_tokens > 1 and alone

    def split(self, rollouts: RolloutTokens, taught: Tensor) -> Iterator[Microbatch]:
        return microbatches(rollouts, self.policy, rows=taught, max_tokens=self.microbatch_tokens)

    def lessons(self, rollouts: RolloutTokens, advantages: Tensor) -> list[Lesson]:
        """One for each mini-batch. Those after the first are scored now, while the policy is the one that sampled."""
        minibatches = minibatch_rows(rollouts, self.minibatches_per_rollout)
        taught = rows_that_teach(advantages, reference=self.reference is not None)
        rollouts, advantages = balanced(
            rollouts, advantages, taught=taught, policy=self.policy, minibatches=len(minibatches)
        )
        made: list[Lesson] = []
        for among in minibatches:
            lesson = partial(self.lesson, rollouts, advantages, among=among, scored=bool(made))
            made.append(self.within_memory(lesson))
        return made

    def lesson(self, rollouts: RolloutTokens, advantages: Tensor, *, among: Tensor, scored: bool) -> Lesson:
        """That of these rows, with all that has to be scored for it: the reference's log-probs, the old policy's."""
        taught = rows_that_teach(advantages, reference=self.reference is not None, among=among)
        split = list(self.split(rollouts, taught))
        return Lesson(
            objective=self.objective,
            correction=self.correction,
            rollouts=rollouts,
            advantages=advantages,
            among=among,
            taught=taught,
            split=split,
            budget=self.microbatch_tokens,
            ref_log_probs=self.ref_log_probs(rollouts, split),
            old_log_probs=scores(self.policy, rollouts, split) if scored else None,
        )

    def ref_log_probs(self, rollouts: RolloutTokens, split: Sequence[Microbatch]) -> Tensor | None:
        """The reference's, where the KL term is estimated from them."""
        if self.reference is None or self.full_kl:
            return None
        return scores(self.reference.policy, rollouts, split)

    def reference_at_hand(self) -> AbstractContextManager[None]:
        return nullcontext() if self.reference is None else self.reference.at_hand()

    def loss(self, lesson: Lesson, microbatch: Microbatch) -> Tensor:
        temperature = lesson.rollouts.temperature
        if self.reference is None or not self.full_kl:
            return lesson.loss(microbatch, log_probs(self.policy, microbatch, temperature))
        found, kl = log_probs_and_full_kl(
            self.policy,
            self.reference.policy,
            microbatch.prompt_ids,
            microbatch.prompt_mask,
            microbatch.completion_ids,
            microbatch.mask,
            owner=microbatch.owner,
            temperature=temperature,
        )
        return lesson.loss(microbatch, found, kl)

    def optimizer_step_of_update(self, lesson: Lesson, update: tuple[int, int]) -> dict[str, float]:
        """Set the learning rate of this rollout batch, clip, step; not with a loss or a gradient that is no number."""
        optimizer = cast(LightningOptimizer, self.optimizers())
        rate = self.optimizer.set_learning_rate(optimizer.optimizer, self.rollout_step - self.warmup_steps)
        norm = clipped_step(self, optimizer, self.policy.parameters(), self.gradient_clip)
        require_finite(update, loss=lesson.update_loss(), gradient=norm)
        budget = float(self.microbatch_tokens)
        return {
            f"{OPTIMIZER}gradient_norm": norm.item(),
            f"{OPTIMIZER}learning_rate": rate,
            f"{OPTIMIZER}microbatch_tokens": budget,
        }
