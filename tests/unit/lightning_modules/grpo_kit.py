"""A tiny GRPO run in a real Trainer for tests: policy, data, reward, and callbacks that record."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
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
from experiments.stages.checkpoints import path_of
from experiments.stages.stage_checkpoint import Interrupted, StageCheckpoint, StopRequest
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
    resume: Path | None = None,
    validate_every: int | None = None,
    draws: RolloutGeneration | None = None,
    data: ReasoningPrompts | None = None,
    root: Path | None = None,
    **instead: Any,
) -> Trainer:
    """Trains on ``steps`` batches, after those of a warm-up."""
    trainer = quiet_trainer(
        max_epochs=1,
        limit_train_batches=steps + trained.warmup_steps,
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


class Recorder(Callback):
    """Records a value of the module and the batch after each training batch."""

    def __init__(self, value: Callable[[Any, Any], Any]) -> None:
        self.value = value
        self.seen: list[Any] = []

    def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, *_: Any) -> None:
        self.seen.append(self.value(pl_module, batch))


class StepWeights(Recorder):
    """Records the trained module's weights and the optimizer's first moments after every step."""

    def __init__(self) -> None:
        super().__init__(lambda module, _: (all_weights(module), first_moments(module.trainer.optimizers[0])))

    def assert_only_skipped(self, step: int) -> None:
        """Checks that the step changed nothing, that the next one did, and that weights are finite."""
        assert_equal(self.seen[step - 1], self.seen[step - 2])
        assert not torch.equal(self.seen[step][0], self.seen[step - 1][0])
        assert self.seen[-1][0].isfinite().all()


def all_weights(module: Any) -> Tensor:
    return torch.cat([parameter.detach().flatten().clone() for parameter in module.parameters()])


def first_moments(optimizer: Any) -> list[Tensor]:
    return [state["exp_avg"].clone() for state in optimizer.state.values()]


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


def is_reproducible(metric: str) -> bool:
    return "seconds" not in metric and "throughput" not in metric


def without_clock(metrics: Mapping[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if is_reproducible(name)}


def assert_equal(first: Any, second: Any) -> None:
    """Checks that tensors, numbers and texts in nested containers are equal bit for bit."""
    if isinstance(first, Tensor):
        assert torch.equal(first, second)
    elif isinstance(first, Mapping):
        assert first.keys() == second.keys()
        assert_equal([*first.values()], [second[key] for key in first])
    elif isinstance(first, list | tuple):
        assert len(first) == len(second)
        for ours, theirs in zip(first, second, strict=True):
            assert_equal(ours, theirs)
    else:
        assert first == second


def assert_resumes(
    make: Callable[[int], GRPO], folder: Path, *, draws: Callable[[], Any] = generation
) -> tuple[GRPO, Metrics]:
    """Checks that a run which is stopped and resumed equals one that is not; returns the latter and its metrics.

    Args:
        make: makes the module, by the seed of its initial weights.
        folder: of the checkpoints.
        draws: makes the callback that draws rollouts.

    A run has three batches beside those of a warm-up, and is stopped after two.
    """

    def run(seed: int, *callbacks: Callback, **more: Any) -> None:
        trained, metrics = make(seed), Metrics()
        logged = Recorder(lambda module, _: without_clock(module.result.metrics))  # without those of earlier steps
        runs.append((trained, metrics, logged.seen))
        trainer = fit(trained, 3, metrics, logged, *callbacks, draws=draws(), **more)
        parts: list[Any] = [trainer.optimizers[0], trained.reward, trained.advantage]
        states.append([part.state_dict() for part in parts if hasattr(part, "state_dict")])

    stop_after = 2
    runs: list[tuple[GRPO, Metrics, list[dict[str, float]]]] = []
    states: list[Any] = []
    run(1)
    stopping = saving(folder / "stopped")
    with pytest.raises(Interrupted):
        run(1, Stop(stop_after, stopping), stopping)
    run(7, saving(folder / "resumed"), resume=path_of(folder / "stopped", stop_after))
    (whole, metrics, steps), (stopped, *_), (resumed, _, later_steps) = runs
    assert stopped.rollout_step == stop_after
    assert resumed.rollout_step == whole.rollout_step == 3 + whole.warmup_steps
    assert torch.equal(weights(resumed), weights(whole))
    assert not torch.equal(weights(whole), weights(make(1)))
    assert later_steps == steps[stop_after:] != []
    assert_equal(*states)
    return whole, metrics
