"""GRPO with any reward: the rollouts of a step are drawn by a callback, this is what is learned from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any, cast

import torch
from lightning import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from torch import Tensor, nn

from contrastive_reasoning.advantages import Advantage, StatefulAdvantage
from contrastive_reasoning.objectives import Correction, Objective, needs_full_kl
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.flops import NO_WORK
from contrastive_reasoning.policies.full_kl import log_probs_and_full_kl
from contrastive_reasoning.ranks import mean_over_ranks, over_ranks
from contrastive_reasoning.rewards import Credit, Reward
from contrastive_reasoning.rewards.base import TrainedReward
from contrastive_reasoning.rewards.verifier import verdicts_of
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Task
from lightning_modules.lesson import OBJECTIVE, SURPRISAL, Lesson, lesson_metrics, minibatch_rows, rows_that_teach
from lightning_modules.microbatches import Microbatch, microbatches, work_of_split
from lightning_modules.optim import AdamW, backward_all, clipped_step
from lightning_modules.passes import log_probs, scores
from lightning_modules.reference import wanted_reference
from lightning_modules.rollout_metrics import (
    accuracy,
    advantage_metrics,
    credit_metrics,
    rollout_metrics,
    score_means,
    success_within_group,
    verdict_shares,
)

VERSION = 2


class GRPO(LightningModule):
    """Learns from the rollouts that it finds in a batch; an update is one pass over all that teach, one optimizer step.

    Only the policy is a registered module. The reference and whatever the reward owns are plain attributes: no
    optimizer, checkpoint or strategy sees them.

    Args:
        policy: what is trained.
        reference: frozen policy for the KL term; None: there is none. One that no KL term asks for is let go.
        offload_reference: keep it in the host's memory between rollout batches.
        task: verifies completions while validating.
        reward: what a rollout is worth.
        advantage: what that means within its group, per token.
        objective: the loss on the policy.
        correction: of the mismatch between the engine that drew the rollouts and the policy.
        optimizer: builds the optimizer and knows the learning rate of every rollout batch.
        updates_per_rollout: passes over each rollout batch.
        minibatches_per_rollout: mini-batches of whole groups that a pass is cut into, an optimizer step each.
        microbatch_tokens: tokens that go through the policy at once, padding included where rows are padded. Packed, a
            prompt counts once, though attention keeps its keys and values for each of its completions.
        gradient_clip: the largest norm of the gradient; None: any.
    """

    def __init__(
        self,
        *,
        policy: CausalLMPolicy,
        reference: CausalLMPolicy | None,
        offload_reference: bool,
        task: Task,
        reward: Reward,
        advantage: Advantage,
        objective: Objective,
        correction: Correction,
        optimizer: AdamW,
        updates_per_rollout: int,
        minibatches_per_rollout: int,
        microbatch_tokens: int,
        gradient_clip: float | None,
    ) -> None:
        super().__init__()
        sizes = {
            "updates_per_rollout": updates_per_rollout,
            "minibatches_per_rollout": minibatches_per_rollout,
            "microbatch_tokens": microbatch_tokens,
        }
        for name, size in sizes.items():
            if size < 1:
                raise ValueError(f"{name} must be at least 1, got {size}")
        if gradient_clip is not None and gradient_clip <= 0:
            raise ValueError(f"gradient_clip must be positive (or null), got {gradient_clip}")
        if any(isinstance(part, nn.Dropout) and part.training and part.p > 0 for part in policy.modules()):
            raise ValueError("policy.lora.dropout must be 0 in GRPO: with it, ratios of a policy to itself are noise")
        self.automatic_optimization = False
        self.policy = policy
        self.reference = wanted_reference(reference, objective, offload=offload_reference)
        self.task = task
        self.reward = reward
        self.advantage = advantage
        self.objective = objective
        self.correction = correction
        self.optimizer = optimizer
        self.updates_per_rollout = updates_per_rollout
        self.minibatches_per_rollout = minibatches_per_rollout
        self.microbatch_tokens = microbatch_tokens
        self.gradient_clip = gradient_clip
        self.rollout_step = 0
        """Rollout batches learned from: the x-axis, the schedule's clock, and the one number that resumes a run."""
        self.work = NO_WORK
        """What passed through the policy, forward and backward, in the last step."""
        self.reported: Mapping[str, float] = {}
        """What the last training step logged, and nothing older, which ``trainer.callback_metrics`` holds too."""

    def setup(self, stage: str) -> None:
        if self.reference is not None:
            self.reference.settle(self.device)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer(self.policy.parameters())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["rollout_step"] = self.rollout_step
        if isinstance(self.reward, TrainedReward):
            checkpoint["reward"] = self.reward.state_dict()
        if isinstance(self.advantage, StatefulAdvantage):
            checkpoint["advantage"] = self.advantage.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.rollout_step = checkpoint["rollout_step"]
        if isinstance(self.reward, TrainedReward):
            self.reward.load_state_dict(checkpoint["reward"])
        if isinstance(self.advantage, StatefulAdvantage):
            self.advantage.load_state_dict(checkpoint["advantage"])

    @property
    def full_kl(self) -> bool:
        """Whether the KL to the reference is over the whole vocabulary, not estimated from the sampled tokens."""
        return self.reference is not None and needs_full_kl(self.objective)

    @property
    def warmup_steps(self) -> int:
        """Rollout batches at the beginning from which only the reward learns."""
        return self.reward.warmup_steps if isinstance(self.reward, TrainedReward) else 0

    def training_step(self, batch: Any, batch_idx: int) -> None:
        rollouts = drawn(batch.rollouts)
        with self.phase("reward"):
            credit = self.reward(rollouts)
        self.work = NO_WORK
        policy = self.update(rollouts, credit) if self.rollout_step >= self.warmup_steps else {}
        self.rollout_step += 1
        known = {**credit_metrics(credit), **rollout_metrics(rollouts), **policy}
        self.reported = over_ranks(known, summed=(OBJECTIVE, SURPRISAL))
        self.report_step(self.reported, batch_size=len(rollouts))

    def update(self, rollouts: RolloutBatch, credit: Credit) -> dict[str, float]:
        """Learn from the rollouts; what is worth logging of it."""
        with self.phase("reward"):
            advantages = self.advantage(credit, rollouts.mask, rollouts.group_size)
        with self.phase("update"):
            with self.reference_at_hand():
                lessons = self.lessons(rollouts, advantages)
            with self.reference_at_hand() if self.full_kl else nullcontext():
                steps = self.learn(lessons)
        policy_step = {"train/policy/step": float(self.rollout_step - self.warmup_steps + 1)}
        seen = advantage_metrics(self.advantage, advantages, rollouts.group_size)
        return {**seen, **lesson_metrics(lessons), **steps, **policy_step}

    def learn(self, lessons: Sequence[Lesson]) -> dict[str, float]:
        """Every update of a rollout batch; what is worth logging of the last optimizer step."""
        steps: dict[str, float] = {}
        works = [work_of_split(self.policy, lesson.split) for lesson in lessons]
        for _ in range(self.updates_per_rollout):
            self.work += sum(works, NO_WORK)
            for lesson in lessons:
                backward_all(self, [partial(self.loss, lesson, microbatch) for microbatch in lesson.split])
                steps = self.optimizer_step_of_update()
                lesson.end_update()
        return steps

    def lessons(self, rollouts: RolloutBatch, advantages: Tensor) -> list[Lesson]:
        """One for each mini-batch. Those after the first are scored now, while the policy is the one that sampled."""
        made: list[Lesson] = []
        for among in minibatch_rows(rollouts, self.minibatches_per_rollout):
            taught = rows_that_teach(advantages, reference=self.reference is not None, among=among)
            split = list(microbatches(rollouts, self.policy, rows=taught, max_tokens=self.microbatch_tokens))
            lesson = Lesson(
                objective=self.objective,
                correction=self.correction,
                rollouts=rollouts,
                advantages=advantages,
                among=among,
                taught=taught,
                split=split,
                ref_log_probs=self.ref_log_probs(rollouts, split),
                old_log_probs=scores(self.policy, rollouts, split) if made else None,
            )
            made.append(lesson)
        return made

    def ref_log_probs(self, rollouts: RolloutBatch, split: Sequence[Microbatch]) -> Tensor | None:
        """The reference's, where the KL term is estimated from them."""
        if self.reference is None or self.full_kl:
            return None
        return scores(self.reference.policy, rollouts, split)

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Tell the profiler, if there is one, what the seconds within go to."""
        trainer: Any = self.trainer
        return trainer.profiler.profile(name)

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

    def optimizer_step_of_update(self) -> dict[str, float]:
        """Clip, set the learning rate of this rollout batch, step."""
        optimizer = cast(LightningOptimizer, self.optimizers())
        rate = self.optimizer.set_learning_rate(optimizer.optimizer, self.rollout_step - self.warmup_steps)
        norm = clipped_step(self, optimizer, self.policy.parameters(), self.gradient_clip)
        return {"train/optimizer/gradient_norm": norm.item(), "train/optimizer/learning_rate": rate}

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Greedy completions in ``batch.rollouts``; several sampled ones per problem in ``batch.sampled``, if drawn."""
        rollouts, own = drawn(batch.rollouts), max(batch.counted, 1)
        verdicts = verdicts_of(self.task, rollouts)[:own]
        metrics = {"val/verifier/accuracy": accuracy(verdicts), **verdict_shares(verdicts, prefix="val/verdict/")}
        metrics.update({f"val/{name}": value for name, value in score_means(self.task, rollouts, own).items()})
        if batch.sampled is not None:
            size = batch.sampled.group_size
            sampled = verdicts_of(self.task, batch.sampled)[: own * size]
            metrics["val/verifier/accuracy_sampled"] = accuracy(sampled)
            metrics[f"val/verifier/pass_at_{size}"] = success_within_group(sampled, size)
        self.report(*mean_over_ranks(metrics, batch.counted))

    def report_step(self, metrics: Mapping[str, float], *, batch_size: int) -> None:
        """Log a training step. What it does not say is not logged: Lightning's own way repeats what was said before."""
        self.log_dict(dict(metrics), batch_size=batch_size, logger=False)  # for callbacks, which may ask for the last
        self.log("step", float(self.rollout_step), batch_size=batch_size)
        trainer: Any = self.trainer
        if trainer.log_every_n_steps and self.rollout_step % trainer.log_every_n_steps == 0:
            for logger in self.loggers:
                logger.log_metrics(dict(metrics), step=self.rollout_step)

    def report(self, metrics: Mapping[str, float], batch_size: int) -> None:
        """Log at the number of rollout batches learned from; Lightning takes its x-axis from ``step``.

        All ranks say the same: Lightning's own way to sum up means over ranks forgets how many each was over.
        """
        self.log_dict(dict(metrics), batch_size=batch_size)
        self.log("step", float(self.rollout_step), batch_size=batch_size, reduce_fx="max")


def drawn(rollouts: RolloutBatch | None) -> RolloutBatch:
    """The rollouts of a batch.

    Raises:
        RuntimeError: where nobody drew them.
    """
    if rollouts is None:
        raise RuntimeError("the batch holds no rollouts: add the RolloutGeneration callback, which draws them")
    return rollouts
