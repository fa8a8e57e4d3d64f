"""GRPO with any reward: the rollouts of a step are drawn by a callback, this is what is learned from them."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn

from contrastive_reasoning.advantages import Advantage, StatefulAdvantage
from contrastive_reasoning.distributed import TooManyLeftOut, dumped, mean_over_ranks, over_ranks
from contrastive_reasoning.objectives import Correction, Objective
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.flops import NO_WORK
from contrastive_reasoning.rewards import Credit, Reward
from contrastive_reasoning.rewards.base import TrainedReward
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Task
from lightning_modules.lesson import OBJECTIVE, SURPRISAL, lesson_metrics
from lightning_modules.not_finite import NotFinite, SkippedSteps, require_finite
from lightning_modules.optim import AdamW
from lightning_modules.policy_updates import PolicyUpdates
from lightning_modules.reference import wanted_reference
from lightning_modules.rollout_metrics import (
    accuracy,
    advantage_metrics,
    credit_metrics,
    reward_counts,
    rollout_metrics,
    score_means,
    success_within_group,
    verdict_shares,
)

VERSION = 2


class GRPO(PolicyUpdates):
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
        max_skipped_steps: rollout batches that may be left out because a number of theirs is not finite.
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
        max_skipped_steps: int,
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
        self.skipped = SkippedSteps(max_skipped_steps)
        self.rollout_step = 0
        """Rollout batches learned from: the x-axis, the schedule's clock, and the one number that resumes a run."""
        self.work = NO_WORK
        """What passed through the policy, forward and backward, in the last step."""
        self.reported: Mapping[str, float] = {}
        """What the last training step logged, and nothing older, which ``trainer.callback_metrics`` holds too."""
        self.credit: Credit | None = None
        """What the last training step's rollouts were worth; None where no reward could tell."""
        self.advantages: Tensor | None = None
        """(B, T), what their tokens were taught with; None where the policy did not learn, as in a reward's warm-up."""

    def setup(self, stage: str) -> None:
        if self.reference is not None:
            self.reference.settle(self.device)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer(self.policy.parameters())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["rollout_step"] = self.rollout_step
        checkpoint["steps_left_out"] = self.skipped.count  # deepspeed keeps "skipped_steps" to itself
        checkpoint["microbatch_tokens"] = self.microbatch_tokens  # halved, perhaps: another split rounds otherwise
        if isinstance(self.reward, TrainedReward):
            checkpoint["reward"] = self.reward.state_dict()
        if isinstance(self.advantage, StatefulAdvantage):
            checkpoint["advantage"] = self.advantage.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.rollout_step = checkpoint["rollout_step"]
        self.skipped.count = checkpoint["steps_left_out"]
        self.microbatch_tokens = min(self.microbatch_tokens, checkpoint["microbatch_tokens"])
        if isinstance(self.reward, TrainedReward):
            self.reward.load_state_dict(checkpoint["reward"])
        if isinstance(self.advantage, StatefulAdvantage):
            self.advantage.load_state_dict(checkpoint["advantage"])

    @property
    def warmup_steps(self) -> int:
        """Rollout batches at the beginning from which only the reward learns."""
        return self.reward.warmup_steps if isinstance(self.reward, TrainedReward) else 0

    def training_step(self, batch: Any, batch_idx: int) -> None:
        rollouts = drawn(batch.rollouts)
        self.work = NO_WORK
        self.credit = self.advantages = None
        known, run = rollout_metrics(rollouts), self.trainer.default_root_dir
        try:
            known |= self.learned(rollouts)
        except NotFinite as reason:
            self.skipped.add(reason, lambda: as_plain(rollouts), run=run, step=self.rollout_step)
        except TooManyLeftOut as reason:
            path = dumped(as_plain(rollouts), run=run, step=self.rollout_step + 1)
            raise FloatingPointError(f"{reason}; the batch of step {self.rollout_step + 1} is in {path}") from None
        self.rollout_step += 1
        known |= self.skipped.metrics
        self.reported = over_ranks(known, summed=(OBJECTIVE, SURPRISAL), counts=reward_counts(self.credit))
        self.report_step(self.reported, batch_size=len(rollouts))

    def learned(self, rollouts: RolloutBatch) -> dict[str, float]:
        """Reward the rollouts and, once the reward is warmed up, learn from them; what is worth logging of it.

        Raises:
            NotFinite: on every rank, where a number is not finite; the optimizer has not stepped on it.
        """
        require_finite(log_probs=rollouts.old_log_probs, pooled=rollouts.pooled)
        with self.phase("reward"):
            credit = self.reward(rollouts)
        require_finite(reward=credit.outcome)
        self.credit = credit
        policy = self.update(rollouts, credit) if self.rollout_step >= self.warmup_steps else {}
        return {**credit_metrics(credit), **policy}

    def update(self, rollouts: RolloutBatch, credit: Credit) -> dict[str, float]:
        """Learn from the rollouts; what is worth logging of it."""
        with self.phase("reward"):
            advantages = self.advantage(credit, rollouts.mask, rollouts.group_size)
        require_finite(advantage=advantages)
        self.advantages = advantages
        with self.phase("update"):
            with self.reference_at_hand():
                lessons = self.lessons(rollouts, advantages)
            with self.reference_at_hand() if self.full_kl else nullcontext():
                steps = self.learn(lessons)
        policy_step = {"train/policy/step": float(self.rollout_step - self.warmup_steps + 1)}
        seen = advantage_metrics(self.advantage, advantages, rollouts.group_size)
        return {**seen, **lesson_metrics(lessons), **steps, **policy_step}

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Tell the profiler, if there is one, what the seconds within go to."""
        trainer: Any = self.trainer
        return trainer.profiler.profile(name)

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


def as_plain(rollouts: RolloutBatch) -> Mapping[str, object]:
    """Tensors and strings alone, so that reading them runs nothing."""
    tensors = ("prompt_ids", "prompt_mask", "completion_ids", "mask", "old_log_probs", "pooled")
    return {
        "problems": [problem.id for problem in rollouts.problems],
        "texts": list(rollouts.texts),
        **{name: getattr(rollouts, name) for name in tensors},
    }
