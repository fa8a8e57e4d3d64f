"""GRPO with any reward, advantage and objective.

rollouts    drawn by the callback RolloutGeneration, in ``batch.rollouts``
credit      reward(rollouts)                          verifier, oracle, critic, CLIPO …
advantages  advantage(credit)                         (B, T)
minibatches of whole groups, an optimizer step each, ``updates_per_rollout`` times
    microbatches by token budget: backward(objective(log-probs, advantages))
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

import torch
from lightning import LightningModule
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import SingleDeviceStrategy
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn

from contrastive_reasoning.advantages import Advantage, StatefulAdvantage
from contrastive_reasoning.distributed import mean_over_ranks, over_ranks
from contrastive_reasoning.evaluation.suite import prefix_names
from contrastive_reasoning.nonfinite import NotFinite, SkippedSteps, keeping_batch, require_finite
from contrastive_reasoning.objectives import Correction, Objective, needs_full_kl
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, log_probs_and_full_kl
from contrastive_reasoning.policies.pass_cost import NO_WORK, Work
from contrastive_reasoning.policies.sharding import shard_layers
from contrastive_reasoning.ranges import above, at_least
from contrastive_reasoning.rewards import Credit, Reward
from contrastive_reasoning.rewards.base import TrainedReward
from contrastive_reasoning.rollout.batch import RolloutBatch, RolloutTokens
from contrastive_reasoning.tasks.base import Task
from lightning_modules.metrics import (
    advantage_metrics,
    credit_metrics,
    reward_counts,
    rollout_metrics,
    validation_metrics,
)
from lightning_modules.microbatches import (
    OBJECTIVE,
    SURPRISAL,
    Microbatch,
    MinibatchUpdate,
    balance_groups,
    merge_metrics,
    microbatches,
    minibatch_rows,
    rows_with_gradient,
    score,
    work_of_microbatches,
)
from lightning_modules.optim import SKIPPED, AdamW, backward_all, check_not_half, clipped_step
from lightning_modules.zero import zero_of

T = TypeVar("T")
UNPADDED = "and a policy without padding makes one for each length of a row"


@dataclass(kw_only=True)
class StepResult:
    """What a training step did with its rollouts. It is filled as the step goes, so a skipped step has a part of it."""

    credit: Credit | None = None
    """None where the reward was not finite."""
    advantages: Tensor | None = None
    """(B, T); None where the policy was not updated, as in a reward's warm-up."""
    work: Work = NO_WORK
    """What passed through the policy, forward and backward."""
    metrics: dict[str, float] = field(default_factory=dict)
    """What the step logged; ``trainer.callback_metrics`` holds older values as well."""


class GRPO(LightningModule):
    """Trains ``policy`` on the rollouts of each batch.

    Only the policy is a registered module. The reference and the parts of the reward are plain attributes: no
    optimizer, checkpoint or strategy handles them.

    Args:
        policy: the policy to train.
        reference: frozen policy for the KL term; None: no reference. It is dropped where no KL term has a weight.
        offload_reference: keep it in host memory between rollout batches.
        shard_reference: keep a share of its layers on each rank; a pass gathers them one after the other.
        task: verifies completions in validation.
        reward: gives each rollout its credit.
        advantage: turns credit into advantages within the group, per token.
        objective: the loss on the policy.
        correction: corrects the mismatch between the engine that drew the rollouts and the policy.
        optimizer: builds the optimizer and gives the learning rate of every rollout batch.
        updates_per_rollout: passes over each rollout batch.
        minibatches_per_rollout: mini-batches of whole groups per pass, an optimizer step each.
        microbatch_tokens: tokens in one pass through the policy, including padding where rows are padded. In a packed
            pass a prompt counts once, though attention keeps its keys and values for each of its completions.
        gradient_clip: the maximum gradient norm; None: no clipping.
        max_skipped_steps: rollout batches that may be skipped because a number is not finite.

    Raises:
        ValueError: for a size below 1, a ``gradient_clip`` that is not positive, a policy in float16 or with dropout, a
            KL term with a weight and no reference, or a reference that is both sharded and offloaded.
    """

    def __init__(
        self,
        *,
        policy: CausalLMPolicy,
        reference: CausalLMPolicy | None,
        offload_reference: bool,
        shard_reference: bool,
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
        at_least(1, updates_per_rollout=updates_per_rollout, minibatches_per_rollout=minibatches_per_rollout)
        at_least(1, microbatch_tokens=microbatch_tokens)
        if gradient_clip is not None:
            above(0, gradient_clip=gradient_clip)
        check_not_half(policy)
        if any(isinstance(part, nn.Dropout) and part.training and part.p > 0 for part in policy.modules()):
            raise ValueError("policy.lora.dropout must be 0 in GRPO: with it, ratios of a policy to itself are noise")
        self.automatic_optimization = False
        self.policy = policy
        self.reference = None
        kl_weight = getattr(objective, "kl_weight", 0.0) if getattr(objective, "kl", None) is not None else 0.0
        if kl_weight > 0:
            if reference is None:
                raise ValueError(
                    f"objective.kl_weight={kl_weight} weighs the KL to a reference, and there is none: choose "
                    "module=grpo_reference, or set objective.kl_weight=0"
                )
            self.reference = Reference(reference, offload=offload_reference, shard=shard_reference)
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
        self.full_kl = self.reference is not None and needs_full_kl(objective)
        """Whether the KL to the reference is over the whole vocabulary, not estimated from the sampled tokens."""
        self.rollout_step = 0
        """Rollout batches trained on: the x axis, the schedule's step, and the number from which a run resumes."""
        self.result = StepResult()
        """Of the last training step, for callbacks."""

    def training_step(self, batch: Any, batch_idx: int) -> None:
        """Trains on ``batch.rollouts``. A step with a number that is not finite is skipped and counted.

        Raises:
            FloatingPointError: if too many steps were skipped; the batch is written to the run folder.
        """
        rollouts = rollouts_of(batch)
        metrics, run = rollout_metrics(rollouts), self.trainer.default_root_dir
        with keeping_batch(lambda: tensors_and_texts(rollouts), run=run, step=self.rollout_step + 1):
            try:
                metrics |= self.learn(rollouts).metrics
            except NotFinite as reason:
                self.skipped.add(str(reason))
        self.rollout_step += 1
        metrics[SKIPPED] = float(self.skipped.count)
        counts = reward_counts(self.result.credit)
        self.result.metrics = over_ranks(metrics, summed=(OBJECTIVE, SURPRISAL), counts=counts)
        self.report_step(self.result.metrics, batch_size=len(rollouts))

    def learn(self, rollouts: RolloutBatch) -> StepResult:
        """Rollouts → credit → advantages → updates of the policy, once the reward is warmed up.

        Raises:
            NotFinite: on every rank, where a number is not finite; the optimizer has not stepped on it.
        """
        result = self.result = StepResult()
        require_finite(log_probs=rollouts.old_log_probs, pooled=rollouts.pooled)
        with self.phase("reward"):
            credit = self.reward(rollouts)
        require_finite(reward=credit.outcome)
        result.credit = credit
        if self.rollout_step < self.warmup_steps:
            result.metrics = credit_metrics(credit)
            return result
        with self.phase("reward"):
            advantages = self.advantage(credit, rollouts.mask, rollouts.group_size)
        require_finite(advantage=advantages)
        result.advantages = advantages
        with self.phase("update"):
            with self.reference_on_device():
                minibatches = self.minibatches(rollouts, advantages)
            updates = minibatches * self.updates_per_rollout
            steps: dict[str, float] = {}
            with self.reference_on_device() if self.full_kl else nullcontext():
                for number, minibatch in enumerate(updates, start=1):
                    where = f" in update {number} of {len(updates)}" if len(updates) > 1 else ""
                    steps = self.update(minibatch, where=where)
        result.metrics = {
            **credit_metrics(credit),
            **advantage_metrics(self.advantage, advantages, rollouts.group_size),
            **merge_metrics(minibatches),
            **steps,
            "train/policy/step": float(self.policy_step + 1),
        }
        return result

    def minibatches(self, rollouts: RolloutTokens, advantages: Tensor) -> list[MinibatchUpdate]:
        """The mini-batches of this rank, after the ranks have balanced their tokens.

        The old log-probs of all but the first mini-batch are scored now, while the policy is still the one that
        sampled.
        """
        parts = minibatch_rows(rollouts, self.minibatches_per_rollout)
        trained = rows_with_gradient(advantages, reference=self.reference is not None)
        rollouts, advantages = balance_groups(
            rollouts, advantages, trained=trained, policy=self.policy, minibatches=len(parts)
        )
        return [
            self.within_memory(partial(self.minibatch, rollouts, advantages, among=among, scored=index > 0))
            for index, among in enumerate(parts)
        ]

    def minibatch(self, rollouts: RolloutTokens, advantages: Tensor, *, among: Tensor, scored: bool) -> MinibatchUpdate:
        """The mini-batch of the rows ``among``, with the log-probs that must be scored beforehand."""
        trained = rows_with_gradient(advantages, reference=self.reference is not None, among=among)
        parts = self.microbatches(rollouts, trained)
        reference = None if self.full_kl else self.reference
        return MinibatchUpdate(
            objective=self.objective,
            correction=self.correction,
            rollouts=rollouts,
            advantages=advantages,
            among=among,
            trained=trained,
            microbatches=parts,
            budget=self.microbatch_tokens,
            ref_log_probs=None if reference is None else score(reference.policy, rollouts, parts),
            scored=score(self.policy, rollouts, parts) if scored else None,
        )

    def microbatches(self, rollouts: RolloutTokens, rows: Tensor) -> list[Microbatch]:
        return list(microbatches(rollouts, self.policy, rows=rows, max_tokens=self.microbatch_tokens))

    def update(self, minibatch: MinibatchUpdate, *, where: str) -> dict[str, float]:
        """One optimizer step on a mini-batch, with the learning rate of this rollout batch; returns its metrics.

        Raises:
            NotFinite: on every rank, where loss or gradient is not finite; earlier updates have been applied.
        """
        self.within_memory(partial(self.accumulate_gradient, minibatch))
        self.result.work += work_of_microbatches(self.policy, minibatch.microbatches)
        optimizer = cast(LightningOptimizer, self.optimizers())
        rate = self.optimizer.set_learning_rate(optimizer.optimizer, self.policy_step)
        norm = clipped_step(self, optimizer, self.policy.parameters(), self.gradient_clip)
        # after the step, which was not taken: a loss that is not finite makes every gradient NaN
        require_finite(where, loss=minibatch.update_loss(), gradient=norm)
        minibatch.end_update()
        return {
            "train/optimizer/gradient_norm": norm.item(),
            "train/optimizer/learning_rate": rate,
            "train/optimizer/microbatch_tokens": float(self.microbatch_tokens),
        }

    def accumulate_gradient(self, minibatch: MinibatchUpdate) -> None:
        """Runs backward for every micro-batch, within the current token budget."""
        if minibatch.budget > self.microbatch_tokens:  # the budget was halved after these micro-batches were made
            minibatch.restart(self.microbatches(minibatch.rollouts, minibatch.trained), self.microbatch_tokens)
        backward_all(self, [partial(self.loss, minibatch, microbatch) for microbatch in minibatch.microbatches])

    def loss(self, minibatch: MinibatchUpdate, microbatch: Microbatch) -> Tensor:
        """The micro-batch's part of the mini-batch's loss."""
        place: dict[str, Any] = {"owner": microbatch.owner, "temperature": minibatch.rollouts.temperature}
        if self.reference is None or not self.full_kl:
            return minibatch.loss(microbatch, self.policy.log_probs(*microbatch.tensors, **place))
        both = log_probs_and_full_kl(self.policy, self.reference.policy, *microbatch.tensors, **place)
        return minibatch.loss(microbatch, *both)

    def within_memory(self, passes: Callable[[], T]) -> T:
        """The result of ``passes``. If a micro-batch does not fit into memory, the budget is halved permanently."""
        while True:
            try:
                return passes()
            except RuntimeError as error:
                # A retry with fewer tokens is safe only if the gradients of the pass are in the parameters alone. On
                # several ranks the others already wait in a collective. DeepSpeed and DDP keep their own gradient
                # buffers, even on one device, which would still hold what was added before the failure.
                alone = isinstance(self.trainer.strategy, SingleDeviceStrategy)
                if not (out_of_memory(error) and self.microbatch_tokens > 1 and alone):
                    raise
            gc.collect()
            torch.cuda.empty_cache()  # after the except block: the error held references to the pass
            self.policy.zero_grad(set_to_none=True)
            self.microbatch_tokens //= 2
            rank_zero_warn(f"a micro-batch does not fit into memory: microbatch_tokens is {self.microbatch_tokens} now")

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        """Greedy completions are in ``batch.rollouts``; sampled ones, if drawn, in ``batch.sampled``."""
        metrics = validation_metrics(self.task, rollouts_of(batch), batch.sampled, count=max(batch.counted, 1))
        metrics = {f"val/{name}": value for name, value in prefix_names(batch.setting, metrics).items()}
        means, batch_size = mean_over_ranks(metrics, batch.counted)
        # every rank logs the same value: Lightning's own mean over ranks ignores how many problems each has
        self.log_dict(means, batch_size=batch_size)
        self.log("step", float(self.rollout_step), batch_size=batch_size, reduce_fx="max")  # Lightning's x-axis

    def report_step(self, metrics: Mapping[str, float], *, batch_size: int) -> None:
        """Logs a training step. Lightning's own logging would repeat a metric in all later steps that lack it."""
        self.log_dict(dict(metrics), batch_size=batch_size, logger=False)  # for callbacks that read the latest value
        self.log("step", float(self.rollout_step), batch_size=batch_size)
        every = cast(Any, self.trainer).log_every_n_steps
        if every and self.rollout_step % every == 0:
            for logger in self.loggers:
                logger.log_metrics(dict(metrics), step=self.rollout_step)

    @property
    def warmup_steps(self) -> int:
        """Rollout batches at the beginning in which only the reward is trained."""
        return self.reward.warmup_steps if isinstance(self.reward, TrainedReward) else 0

    @property
    def policy_step(self) -> int:
        """Rollout batches that the policy was trained on."""
        return self.rollout_step - self.warmup_steps

    def phase(self, name: str) -> AbstractContextManager[None]:
        """Attributes the time within to ``name`` in the profiler."""
        return cast(Any, self.trainer).profiler.profile(name)

    def reference_on_device(self) -> AbstractContextManager[None]:
        return nullcontext() if self.reference is None else self.reference.on_device()

    def setup(self, stage: str) -> None:
        strategy = zero_of(self)
        if self.policy.unpadded and strategy is not None and strategy.stage == 3:
            # it would wait forever: each pass gathers weights on all ranks, and ranks have rows of other lengths
            raise ValueError(f"trainer: ZeRO-3 needs as many passes on every rank, {UNPADDED}: choose trainer=zero2")
        if self.reference is not None:
            self.reference.place(self.trainer.strategy.root_device)  # the module itself is moved there later

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return self.optimizer(self.policy.parameters())

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["rollout_step"] = self.rollout_step
        checkpoint["steps_left_out"] = self.skipped.count  # deepspeed reserves the key "skipped_steps"
        checkpoint["microbatch_tokens"] = self.microbatch_tokens  # perhaps halved: another split rounds differently
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


class Reference:
    """The frozen policy of a KL term. It is not a module, so no optimizer, checkpoint or strategy of GRPO handles it.

    With ``offload`` it is kept in host memory, and moves to the device only within ``on_device``. With ``shard`` each
    rank keeps its share of the layers. Raises ValueError for both, or for a shard of a policy without padding.
    """

    def __init__(self, policy: CausalLMPolicy, *, offload: bool, shard: bool) -> None:
        if offload and shard:
            raise ValueError("set at most one of module.shard_reference and module.offload_reference")
        if shard and policy.unpadded:
            raise ValueError(f"module.shard_reference needs as many passes on every rank, {UNPADDED}: set it to false")
        self.policy = policy.requires_grad_(False).eval()
        self.offload = offload
        self.shard = shard
        self._device = torch.device("cpu")

    def place(self, device: torch.device) -> None:
        """Sets the device on which it computes. Called once the process group exists, which sharding needs."""
        self._device = device
        if self.shard:
            shard_layers(self.policy.backbone, device)  # so the device never holds the whole model
        self.policy.to("cpu" if self.offload else device)

    @contextmanager
    def on_device(self) -> Iterator[None]:
        self.policy.to(self._device)
        try:
            yield
        finally:
            if self.offload:
                self.policy.to("cpu")


def out_of_memory(error: RuntimeError) -> bool:
    # torch's CPU allocator raises a plain RuntimeError
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)


def rollouts_of(batch: Any) -> RolloutBatch:
    """The rollouts of a batch, drawn by a callback. Raises RuntimeError if there are none."""
    if batch.rollouts is None:
        raise RuntimeError("the batch holds no rollouts: add the RolloutGeneration callback, which draws them")
    return batch.rollouts


def tensors_and_texts(rollouts: RolloutBatch) -> Mapping[str, object]:
    """Tensors and strings alone, so that loading them runs no code."""
    tensors = ("prompt_ids", "prompt_mask", "completion_ids", "mask", "old_log_probs", "pooled")
    return {
        "problems": [problem.id for problem in rollouts.problems],
        "texts": list(rollouts.texts),
        **{name: getattr(rollouts, name) for name in tensors},
    }
