"""A tiny GRPO run in a real Trainer for tests: policy, data, reward, and callbacks that record."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import torch
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import Checkpoint
from torch import Tensor
from transformers.models.llama.modeling_llama import LlamaRMSNorm

from callbacks.rollout_generation import RolloutGeneration
from contrastive_reasoning.advantages import GroupRelative
from contrastive_reasoning.objectives import GRPO as Objective, K3, NoCorrection, TokenMean
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.rewards import Credit
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.tasks.countdown import CountdownTask
from datamodules.reasoning_prompts import ReasoningPrompts
from experiments.stages.stage_checkpoint import StageCheckpoint, StopRequest
from lightning_modules.grpo import GRPO
from lightning_modules.optim import AdamW
from tests.quiet import quiet_trainer
from tests.tiny_models import tiny_llama, tiny_policy
from tests.tiny_tasks import countdown

TASK = countdown()
CORPUS = [problem.prompt for problem in TASK.problems("train")] + ["21+16=37;37-17=20"]
TOKENIZER = train_tokenizer(CORPUS, vocab_size=280)


class Digits:
    """A reward that a random policy can earn: the share of digits in the completion."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        shares = [sum(c.isdigit() for c in text) / max(len(text), 1) for text in rollouts.texts]
        outcome = rollouts.old_log_probs.new_tensor(shares)
        return Credit(outcome=outcome, parts={"digits": outcome})


def policy(dtype: torch.dtype = torch.float32, seed: int = 1) -> CausalLMPolicy:
    """A policy with large random weights, so that completions differ and some end early; exact norms in float64."""
    model = tiny_llama(TOKENIZER, hidden_size=32)
    if dtype == torch.float64:
        for norm in (part for part in model.modules() if isinstance(part, LlamaRMSNorm)):
            norm.forward = partial(exact_norm, norm)
    return as_policy(spread(model, seed).to(dtype))


def as_policy(model: Any, compute_dtype: torch.dtype = torch.float32, **settings: Any) -> CausalLMPolicy:
    return tiny_policy(TOKENIZER, model, compute_dtype=compute_dtype, **settings)


def lora_policy(dtype: torch.dtype = torch.float32, dropout: float = 0.0) -> CausalLMPolicy:
    """A policy with adapters in fp32 on weights of ``dtype``, which is also the compute dtype."""
    lora = LoRA(rank=2, alpha=4.0, dropout=dropout, target_modules="all-linear")
    model: Any = policy().model.to(dtype)
    return as_policy(lora.attach(model, seed=0), dtype)


def spread(model: Any, seed: int) -> Any:
    """Sets the model's matrices to large random values, and returns the model."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.15, generator=generator)
    return model


def exact_norm(norm: Any, hidden: Tensor) -> Tensor:
    """RMS norm in the input's dtype. The model's own casts to float32, so gradients summed before round differently."""
    return norm.weight * hidden * (hidden.square().mean(-1, keepdim=True) + norm.variance_epsilon).rsqrt()


def module(**changes: Any) -> GRPO:
    parts: dict[str, Any] = {
        "policy": policy(),
        "reference": None,
        "offload_reference": False,
        "shard_reference": False,
        "correction": NoCorrection(),
        "task": TASK,
        "reward": Digits(),
        "advantage": GroupRelative(normalise_std=True, epsilon=1e-6),
        "objective": objective(),
        "optimizer": optimizer(),
        "updates_per_rollout": 1,
        "minibatches_per_rollout": 1,
        "microbatch_tokens": 300,
        "gradient_clip": 1.0,
        "max_skipped_steps": 2,
    }
    return GRPO(**parts | changes)


def objective(kl_weight: float = 0.0, aggregation: Any = None) -> Objective:
    return Objective(
        clip_low=0.2,
        clip_high=0.2,
        dual_clip=None,
        kl_weight=kl_weight,
        kl=K3(max_log_ratio=20.0, max_value=10.0),
        aggregation=aggregation or TokenMean(),
    )


def optimizer(learning_rate: float = 1e-3, **changes: Any) -> AdamW:
    settings: dict[str, Any] = {
        "betas": [0.9, 0.99],
        "epsilon": 1e-8,
        "weight_decay": 0.0,
        "warmup_steps": 2,
        "schedule": "linear",
        "total_steps": 100,
    }
    return AdamW(learning_rate=learning_rate, **settings | changes)


def sampling(temperature: float, max_tokens: int = 12, stop: Sequence[str] = ascii_lowercase) -> Sampling:
    """By default a letter ends a completion, so that lengths differ."""
    return Sampling(temperature=temperature, top_k=None, top_p=1.0, max_tokens=max_tokens, stop=tuple(stop))


def generation(kind: type[RolloutGeneration] = RolloutGeneration, **changes: Any) -> Any:
    settings: dict[str, Any] = {
        "engine": Engine(max_batch_tokens=100_000),
        "group_size": 4,
        "sampling": sampling(0.9),
        "greedy": sampling(0.0),
        "validation_samples": 0,
        "copy_weights": True,
        "seed": 3,
    }
    return kind(**settings | changes)


def fit(
    trained: GRPO,
    steps: int,
    *callbacks: Callback,
    logger: Any = False,
    stop_after: int | None = None,
    resume: Path | None = None,
    validate_every: int | None = None,
    draws: RolloutGeneration | None = None,
    data: ReasoningPrompts | None = None,
    root: Path | None = None,
    **instead: Any,
) -> Trainer:
    """Runs ``stop_after`` of ``steps`` steps."""
    trainer = quiet_trainer(
        max_epochs=1,
        limit_train_batches=steps + trained.warmup_steps,
        max_steps=-1 if stop_after is None else stop_after * trained.updates_per_rollout,
        limit_val_batches=0 if validate_every is None else None,
        val_check_interval=validate_every,
        log_every_n_steps=1,
        logger=logger,
        callbacks=saving_first([draws or generation(validation_samples=2 if validate_every else 0), *callbacks]),
        enable_checkpointing=any(isinstance(callback, Checkpoint) for callback in callbacks),
        inference_mode=False,
        default_root_dir=root,
        **instead,
    )
    trainer.fit(trained, datamodule=data or prompts(3, steps), ckpt_path=resume, weights_only=True)
    return trainer


def prompts(
    problems: int, steps: int, task: CountdownTask = TASK, validation_problems: int = 5, training_problems: int = 0
) -> ReasoningPrompts:
    return ReasoningPrompts(
        task=task,
        problems_per_step=problems,
        validation_problems=validation_problems,
        training_problems=training_problems,
        steps=steps,
        max_prompt_tokens=None,
        seed=0,
    )


class Gradients(Callback):
    """Records the gradient of every update."""

    def __init__(self) -> None:
        self.updates: list[Tensor] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        flat = [parameter.grad.flatten() for parameter in pl_module.parameters() if parameter.requires_grad]
        self.updates.append(torch.cat(flat).clone())


class Metrics(Callback):
    """Records what was logged in every training step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.steps.append({name: value.item() for name, value in trainer.callback_metrics.items()})


def saving_first(callbacks: list[Callback]) -> list[Callback]:
    """Puts checkpoint callbacks first, as a stage does."""
    return sorted(callbacks, key=lambda callback: not isinstance(callback, StageCheckpoint))


def saving(folder: Path, keep: int = 1, kind: type[StageCheckpoint] = StageCheckpoint, every: int = 1) -> Any:
    """A checkpoint callback that saves after every step."""
    return kind(folder=folder, every=every, keep=keep, best=None, stop=StopRequest())


class Stop(Callback):
    """Stops a run as a signal would, after a number of batches."""

    def __init__(self, after: int, saving: StageCheckpoint) -> None:
        self.after = after
        self.saving = saving

    def on_train_batch_end(self, trainer: Any, pl_module: Any, *_: Any) -> None:
        if pl_module.rollout_step == self.after:
            self.saving.stop.signal_name = "a test"


def weights(trained: GRPO) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trained.policy.parameters()])


def gradients(tokens: int, dtype: torch.dtype, aggregation: Any, updates: int) -> list[Tensor]:
    captured, metrics = Gradients(), Metrics()
    trained = module(
        policy=policy(dtype),
        reference=policy(dtype, seed=2),
        objective=objective(0.1, aggregation),
        microbatch_tokens=tokens,
        updates_per_rollout=updates,
        gradient_clip=None,
    )
    fit(trained, 1, captured, metrics)
    assert 0.2 < metrics.steps[0]["train/rollout/truncated"] < 0.9, "completions of many lengths"
    return captured.updates
