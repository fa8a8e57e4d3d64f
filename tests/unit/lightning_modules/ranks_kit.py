"""The same short training by one process and by two, under every strategy; results are plain tensors."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, LightningDataModule, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from contrastive_reasoning.distributed import over_ranks, ranks, this_rank
from contrastive_reasoning.objectives import GRPO, K3, FullKL, TokenMean
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.sharding import gathered
from contrastive_reasoning.rewards import CLIPOReward, Credit
from contrastive_reasoning.rollout.batch import RolloutBatch, RolloutTokens
from experiments.stages.stage_checkpoint import Interrupted, StageCheckpoint
from lightning_modules import grpo as grpo_module, microbatches
from lightning_modules.optim import FiniteSteps
from lightning_modules.zero import ZeroStrategy
from tests.quiet import quiet_trainer
from tests.tiny_models import tiny_llama
from tests.unit.lightning_modules import grpo_kit, rewards_kit

Result = dict[str, Any]
STEPS = 3
WHOLE = 512
"""The size of the key and value projections; norms are smaller."""
ESTIMATE = K3(max_log_ratio=20.0, max_value=10.0)
"""The KL from the sampled tokens."""


def strategy(name: str) -> Any:
    """The strategy by name; ``one`` is a single process.

    At stage 3 no parameter stays whole, except under ``…_small``: those of at most ``WHOLE`` numbers.
    """
    if name == "one":
        return "auto"
    if name == "ddp":
        return DDPStrategy()
    return ZeroStrategy(
        stage=int(name[4]),
        offload_optimizer="offload" in name,
        offload_parameters="offload" in name,
        bucket_elements=1_000_000,
        whole_elements=WHOLE if "small" in name else 0,
    )


def fit(
    name: str,
    module: LightningModule,
    data: LightningDataModule,
    *callbacks: Callback,
    steps: int = STEPS,
    resume: Path | None = None,
    **changes: Any,
) -> Trainer:
    """Trains under the strategy, and returns the trainer."""
    fitting = quiet_trainer(
        devices=1 if name == "one" else 2,
        strategy=strategy(name),
        limit_train_batches=steps,
        val_check_interval=steps,
        log_every_n_steps=1,
        inference_mode=False,
        use_distributed_sampler=False,
        callbacks=grpo_kit.saving_first([*callbacks]),
        **changes,
    )
    fitting.fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    return fitting


def whole_weights(module: LightningModule) -> Tensor:
    with gathered(module):
        return torch.cat([parameter.detach().flatten().clone() for parameter in module.parameters()])


def trained(name: str, module: LightningModule, data: LightningDataModule, *callbacks: Callback, **run: Any) -> Result:
    """Trains; returns weights and their change, dtypes, and the metrics of each step and of the last validation."""
    metrics, start = grpo_kit.Metrics(), whole_weights(module)
    fitted = fit(name, module, data, *callbacks, metrics, **run)
    weights = whole_weights(module)
    return {
        "weights": weights,
        "moved": weights - start,
        "dtypes": sorted({(one.requires_grad, str(one.dtype)) for one in module.parameters()}),
        "steps": [grpo_kit.without_clock(step) for step in metrics.steps],
        "validated": {key: value.item() for key, value in fitted.callback_metrics.items() if key.startswith("val/")},
    }


def grpo(
    name: str,
    *callbacks: Callback,
    steps: int = STEPS,
    resume: Path | None = None,
    level: str = "group",
    reward: Any = None,
    problems: int = 4,
    **changes: Any,
) -> Result:
    """Runs GRPO with two updates on each of two mini-batches, of several micro-batches each.

    The reward is trained as well; by default it is CLIPO's, which trains a head.
    """
    reward = reward or rewards_kit.clipo(level=level)
    module = grpo_kit.module(
        reward=reward, microbatch_tokens=120, updates_per_rollout=2, minibatches_per_rollout=2, **changes
    )
    data, draws = grpo_kit.prompts(problems, steps), grpo_kit.generation(validation_samples=2)
    found = trained(name, module, data, *callbacks, draws, steps=steps, resume=resume)
    learner = reward.g if isinstance(reward, CLIPOReward) else reward.critic
    return {**found, "head": parameters_to_vector(learner.parameters()).detach().clone()}


def with_gradient(train: Callable[..., Result], name: str, **changes: Any) -> Result:
    """Adds the gradient of the first update, before clipping. AdamW would hide a common factor."""
    gradients = grpo_kit.Gradients()
    return {**train(name, gradients, **changes), "gradient": gradients.updates[0]}


def adapters_on_bfloat16(name: str, *callbacks: Callback, **run: Any) -> Result:
    return grpo(name, *callbacks, policy=grpo_kit.lora_policy(torch.bfloat16), **run)


class Fuses(Callback):
    """Records whether a policy's layers are fused while it trains."""

    found: bool | None = None

    def on_train_batch_end(self, trainer: Trainer, pl_module: Any, *_: Any) -> None:
        self.found = pl_module.policy.fuses


def cast_to_bfloat16(name: str, **run: Any) -> Result:
    """Trains fp32 weights that passes cast."""
    fuses, policy = Fuses(), grpo_kit.as_policy(grpo_kit.policy().model, torch.bfloat16)
    return grpo(name, fuses, policy=policy, **run) | {"fused": fuses.found}


class SpoiledOnLastRank(Callback):
    """Makes the loss of the second step NaN on the last rank only."""

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        if this_rank() < ranks() - 1:
            return
        name = "training_step" if isinstance(pl_module, FiniteSteps) else "loss"
        original = getattr(pl_module, name)

        def corrupted(*args: Any) -> Tensor:
            step = getattr(pl_module, "rollout_step", trainer.global_step)
            return original(*args) * float("nan") if step == 1 else original(*args)

        setattr(pl_module, name, corrupted)


class StatesSpoiledOnLastRank(CLIPOReward):
    """Makes a pooled state of the second rollout batch NaN on the last rank only."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        assert rollouts.pooled is not None
        pooled = rollouts.pooled.clone()
        if self.calls == 1 and this_rank() == ranks() - 1:
            pooled[-1] = float("nan")
        return super().__call__(replace(rollouts, pooled=pooled))


def states_spoiled(name: str) -> Result:
    reward = rewards_kit.clipo(max_skipped_steps=1)
    reward.__class__ = StatesSpoiledOnLastRank
    return grpo(name, reward=reward)


def spoiled_in_bfloat16(name: str) -> Result:
    """Trains all weights in half precision, which sharded optimizers handle as a separate case."""
    model: Any = grpo_kit.policy().model.to(torch.bfloat16)
    return grpo(name, SpoiledOnLastRank(), policy=grpo_kit.as_policy(model, torch.bfloat16))


def means_of_unequal_ranks() -> dict[str, float]:
    """Means over ranks: rank 0 has one thing of value 1; the other has eight of value 0."""
    value, count = (1.0, 1.0) if this_rank() == 0 else (0.0, 8.0)
    return over_ranks({"of things": value, "of ranks": value}, counts={"of things": count})


def stop_on_last_rank(saving: StageCheckpoint) -> None:
    """Requests a stop on the last rank only, as a signal would."""
    if this_rank() == ranks() - 1:
        saving.stop.signal_name = "SIGTERM"


class StoppedInFirstStep(StageCheckpoint):
    """A stop is requested during the first step."""

    def on_train_batch_end(self, *arguments: Any) -> None:
        stop_on_last_rank(self)
        super().on_train_batch_end(*arguments)


class StoppedWhileSaving(StageCheckpoint):
    """A stop is requested while a checkpoint is written."""

    def save(self, *arguments: Any) -> None:
        super().save(*arguments)
        stop_on_last_rank(self)


def stopped_while_saving(name: str, folder: Path) -> list[str]:
    """The remaining checkpoints of a stopped run that saves after every second step."""
    with pytest.raises(Interrupted, match="step 2"):
        grpo(name, grpo_kit.saving(folder, keep=9, kind=StoppedWhileSaving, every=2))
    return sorted(path.name for path in folder.glob("step=*.ckpt"))


def resumed(name: str, folder: Path, first: Callable[..., Result], second: Callable[..., Result]) -> Result:
    """Stops ``first`` after one step, and resumes its checkpoint in ``second``, which has other initial weights."""
    with pytest.raises(Interrupted, match="step 1"):
        first(name, grpo_kit.saving(folder, keep=9, kind=StoppedInFirstStep))
    return second(name, grpo_kit.saving(folder, keep=9), resume=folder / "step=000001.ckpt")


GROUP = 2
PROMPTS = [[2, 3, 1, 4], [5, 1, 2, 6]]
"""Prompt lengths of each rank's problems, in tokens."""
COMPLETIONS = [[4, 3, 9, 9, 2, 1, 7, 8], [1, 1, 2, 1, 1, 2, 3, 1]]
TRAINED = [[True, False, True, True, False, False, True, True], [True, True, False, False, True, True, True, True]]


def drawn(rank: int) -> tuple[RolloutTokens, Tensor, Tensor]:
    """Rollouts, advantages and trained rows of a rank, padded to its longest. Ids encode rank, row and position."""
    prompts, lengths = torch.tensor(PROMPTS[rank]), torch.tensor(COMPLETIONS[rank])
    width = int(prompts.max())
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    prompt_mask = torch.arange(width) >= width - prompts[:, None]
    ids = (1000 * (rank + 1) + 100 * torch.arange(len(lengths))[:, None] + torch.arange(mask.shape[1])) * mask
    rollouts = RolloutTokens(
        prompt_ids=(10_000 * (rank + 1) + 100 * torch.arange(len(prompts))[:, None] + torch.arange(width))
        * prompt_mask,
        prompt_mask=prompt_mask,
        completion_ids=ids,
        mask=mask,
        old_log_probs=-ids.float(),
        temperature=0.5,
        group_size=GROUP,
    )
    trained = torch.tensor(TRAINED[rank])
    return rollouts, (ids * trained[:, None]).float() / 2, trained


def plain(rollouts: RolloutTokens, advantages: Tensor) -> list[Any]:
    """The prompt of each group and, for each row, completion, log-probs and advantages, without padding."""
    groups = []
    for place, (ids, mask) in enumerate(zip(rollouts.prompt_ids, rollouts.prompt_mask, strict=True)):
        rows = range(place * GROUP, (place + 1) * GROUP)
        parts = (rollouts.completion_ids, rollouts.old_log_probs, advantages)
        groups.append(
            [ids[mask].tolist(), [[part[row][rollouts.mask[row]].tolist() for part in parts] for row in rows]]
        )
    return groups


def exchanged(policy: CausalLMPolicy, minibatches: int) -> Result:
    """This rank's groups before and after balancing, and their tokens in the policy."""
    rollouts, advantages, trained_rows = drawn(this_rank())
    balanced, balanced_advantages = microbatches.balance_groups(
        rollouts, advantages, trained=trained_rows, policy=policy, minibatches=minibatches
    )
    now = (balanced_advantages != 0).any(dim=1)
    return {
        "before": plain(rollouts, advantages),
        "after": plain(balanced, balanced_advantages),
        "tokens before": list(microbatches.group_tokens(rollouts, trained_rows, policy)),
        "tokens": list(microbatches.group_tokens(balanced, now, policy)),
        "temperature": balanced.temperature,
    }


def moving(name: str) -> Result:
    """Runs GRPO with three groups per rank in a mini-batch, some without a gradient; counts moves of groups."""
    moves = []

    def seen(rollouts: Any, *args: Any, **named: Any) -> Any:
        found = microbatches.balance_groups(rollouts, *args, **named)
        moves.append(found[0] is not rollouts)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo_module, "balance_groups", seen)
        return {**grpo(name, problems=12, steps=2), "moves": sum(moves)}


def untied(seed: int) -> CausalLMPolicy:
    """The kit's policy with ``lm_head.weight``, read outside its module's forward, not tied to the embedding."""
    tied = tiny_llama(grpo_kit.TOKENIZER, hidden_size=32)
    config = deepcopy(tied.config)
    config.tie_word_embeddings = False
    kind: Any = type(tied)
    model = grpo_kit.spread(kind(config), seed)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    return grpo_kit.as_policy(model, chunk=16)


def with_reference(name: str, *callbacks: Callback, kl: K3 | FullKL = ESTIMATE, **changes: Any) -> Result:
    """Runs GRPO with a KL term and bounds that no ratio reaches: there, rounding decides if a token has a gradient."""
    objective = GRPO(clip_low=0.9, clip_high=9.0, dual_clip=None, kl_weight=0.1, kl=kl, aggregation=TokenMean())
    return grpo(
        name, *callbacks, steps=2, policy=untied(seed=1), reference=untied(seed=2), objective=objective, **changes
    )
