"""The training stages: build a module and its data, fit, and save the result for later stages."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning import LightningDataModule, LightningModule, Trainer
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Callback, Timer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DeepSpeedStrategy
from omegaconf import DictConfig, OmegaConf
from torch import nn

from contrastive_reasoning.critics.checkpoint import save_critic
from contrastive_reasoning.distributed import barrier, this_rank
from contrastive_reasoning.errors import EndsRun
from contrastive_reasoning.policies.sharding import gathered
from contrastive_reasoning.progress import steps_done
from contrastive_reasoning.workers.functions import describe
from experiments.assemble import AssemblyError, build
from experiments.config.composition import trains_warm_start
from experiments.config.contradictions import precision_flaw
from experiments.config.stages import STAGES
from experiments.run_folder.reader import CRITIC, POLICY
from experiments.stages.checkpoints import CHECKPOINTS, CheckpointError, forget, newest, newest_sound
from experiments.stages.plan import plain
from experiments.stages.stage_checkpoint import Interrupted, StageCheckpoint, StopRequest
from experiments.system.devices import unusable_device
from experiments.system.terminal import first_line

SHORTENING = {"max_time": None, "limit_train_batches": 1.0, "overfit_batches": 0.0, "accumulate_grad_batches": 1}
"""Trainer setting that may leave a stage with fewer steps than its budget → the value with which it does not."""


class StageFailed(EndsRun):
    """Raised if a stage has ended without a result: too few steps, nothing learned, or code that ended the process."""


def warm_start(
    config: DictConfig, folder: Path, folders: Mapping[str, Path], loggers: Sequence[Logger]
) -> Mapping[str, Any]:
    """Trains a policy on format and rules if ``warm_start.train`` requires it; otherwise uses the policy as given."""
    if not trains_warm_start(config):
        print(f"warm_start: the policy is taken as it is: {config.policy.pretrained or 'a fresh one'}")
        return {"policy": config.policy.pretrained}
    module, data = (build(config, key) for key in STAGES["warm_start"].parts)
    fit(config, "warm_start", folder, module, data, loggers=loggers, acting=[])
    save_whole(module.policy, lambda: module.policy.save(folder / POLICY))
    return {"policy": POLICY}


def critic(
    config: DictConfig, folder: Path, folders: Mapping[str, Path], loggers: Sequence[Logger]
) -> Mapping[str, Any]:
    """Pretrains the critic and measures it against the oracle."""
    module, data = (build(config, key) for key in STAGES["critic"].parts)
    fit(config, "critic", folder, module, data, loggers=loggers, acting=[])
    description: Any = OmegaConf.to_container(config.critic, resolve=True)
    save_whole(module.critic, lambda: save_critic(module.critic, folder / CRITIC, description))
    return {"critic": CRITIC}


def grpo(config: DictConfig, folder: Path, folders: Mapping[str, Path], loggers: Sequence[Logger]) -> Mapping[str, Any]:
    """Trains the policy with rollouts, rewards and the objective."""
    module, data, *acting = (build(config, key) for key in STAGES["grpo"].parts)
    fit(config, "grpo", folder, module, data, loggers=loggers, acting=acting)
    save_whole(module.policy, lambda: module.policy.save(folder / POLICY))
    return {"policy": POLICY}


def save_whole(model: nn.Module, save: Callable[[], None]) -> None:
    """Saves a model on rank 0. Sharded parameters are gathered first."""
    with gathered(model):  # on every rank: gathering is a collective operation
        if this_rank() == 0:
            save()
    barrier()


def fit(
    config: DictConfig,
    stage: str,
    folder: Path,
    module: LightningModule,
    data: LightningDataModule,
    *,
    loggers: Sequence[Logger],
    acting: list[Callback],
) -> None:
    """Runs one Lightning fit of ``budget.<stage>.steps`` batches, resumed from the newest undamaged checkpoint.

    Raises:
        Interrupted: on Ctrl-C or SIGTERM.
        CheckpointError: if a checkpoint cannot be written, or all existing ones are damaged.
        StageFailed: if it made fewer steps than planned, or skipped all of them.
    """
    stop = StopRequest()
    trainer = build_trainer(config, stage, folder, acting, stop, logger=loggers)
    last, passed_over = newest_sound(folder / CHECKPOINTS)
    if passed_over and this_rank() == 0:
        forget(folder / CHECKPOINTS, after=last)
    for sentence in passed_over:
        print(f"{sentence}: {'starting again' if last is None else f'resuming from {last}'}")
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        with stop.listening():
            if last is None:  # so that curves start before the first update
                before = trainer
                if isinstance(trainer.strategy, DeepSpeedStrategy):  # DeepSpeed's hooks would stay on the module
                    before = build_trainer(config, stage, folder, acting, stop, logger=loggers, strategy="ddp")
                before.validate(module, datamodule=data, verbose=False)
                trainer.fit(module, datamodule=data)
            else:
                # here weights_only restricts unpickling; in save_checkpoint it would leave out the optimizer
                trainer.fit(module, datamodule=data, ckpt_path=str(last), weights_only=True)
    except Interrupted as stopped:
        raise Interrupted(f"{stage}: {stopped}") from stopped
    except CheckpointError as error:
        raise type(error)(f"{stage}: {error}") from error
    except SystemExit as now:
        cause = now.__context__
        if not isinstance(cause, KeyboardInterrupt):  # else Lightning raised it, having closed its parts
            raise
        signal.signal(signal.SIGINT, on_interrupt)
        if stop.signal_name is None:
            raise StageFailed(f"{stage}: ended by {describe(cause)}, which no signal caused") from now
        last = newest(folder / CHECKPOINTS)
        left = "no checkpoint yet" if last is None else f"checkpoint {last}"
        raise Interrupted(f"{stage}: stopped at step {steps_done(trainer, module)} ({left})") from now
    check_finished(config, stage, trainer, module)


def check_finished(config: DictConfig, stage: str, trainer: Trainer, module: Any) -> None:
    """Raises StageFailed unless the stage made its planned steps and the optimizer took at least one of them.

    A callback may end it earlier, such as Lightning's EarlyStopping, but no time limit.
    """
    planned, counted = config.budget[stage].steps, stage != "grpo" or hasattr(module, "rollout_step")
    made = steps_done(trainer, module) if counted else trainer.fit_loop.epoch_loop.batch_progress.total.completed
    if made < planned:
        if not trainer.should_stop or _is_out_of_time(trainer):
            raise StageFailed(f"{stage}: made {made} of {planned} steps; {_likely_cause(config, stage)}")
        print(f"{stage}: a callback ended it at step {made} of {planned}")
    learning = made - getattr(module, "warmup_steps", 0)  # before, only the reward learns
    learning = learning if learning > 0 else made
    skipped = module.skipped.count if hasattr(module, "skipped") else 0
    if 0 < learning <= skipped:
        allowed = f"{STAGES[stage].parts[0]}.max_skipped_steps={module.skipped.most}"
        raise StageFailed(
            f"{stage}: learned nothing in {made} of {planned} steps; {skipped} were skipped, because a number was not "
            f"finite ({allowed} allows that): look at its learning rate and the weights that it starts from"
        )


def _is_out_of_time(trainer: Trainer) -> bool:
    callbacks: list[Any] = trainer.callbacks  # pyright: ignore[reportAttributeAccessIssue]
    left = [callback.time_remaining() for callback in callbacks if isinstance(callback, Timer)]
    return any(seconds is not None and seconds <= 0 for seconds in left)


def _likely_cause(config: DictConfig, stage: str) -> str:
    found = {key: config.trainer.get(key) for key in SHORTENING}
    named = [
        f"trainer.{key}={value}"
        for key, value in found.items()
        if value is not None and str(value) != str(SHORTENING[key])
    ]
    if named:
        return f"the likely cause is {' or '.join(named)}"
    return f"the likely cause is {STAGES[stage].parts[1]}, whose batches ended, or a Timer in callbacks.{stage}"


def build_trainer(
    config: DictConfig, stage: str, folder: Path, acting: list[Callback], stop: StopRequest, **others: Any
) -> Trainer:
    """Builds the trainer of a stage. Order of callbacks: checkpoints, those that take part in training, observers."""
    watching = [*build(config, "callbacks.every").values(), *build(config, f"callbacks.{stage}").values()]
    budget = config.budget[stage]
    checkpoint = StageCheckpoint(
        folder=folder / CHECKPOINTS,
        every=budget.checkpoint_every,
        keep=config.checkpoints.keep,
        best=plain(config.checkpoints.best[stage]),
        stop=stop,
    )
    return make_trainer(
        config,
        max_epochs=1,
        max_steps=budget.steps * budget.get("updates", 1) * budget.get("minibatches", 1),  # in optimizer steps
        val_check_interval=budget.evaluate_every,
        check_val_every_n_epoch=None,  # otherwise Lightning refuses an interval longer than the epoch
        log_every_n_steps=budget.log_every,
        callbacks=[checkpoint, *acting, *watching],
        enable_checkpointing=False,  # no checkpoints by Lightning
        default_root_dir=str(folder),
        **others,
    )


def make_trainer(config: DictConfig, **arguments: Any) -> Trainer:
    """Builds the configuration's trainer.

    Raises AssemblyError for invalid settings, a device that is missing or is Apple's MPS, or a precision other than
    float32.
    """
    if flaw := unusable_device(config.trainer.accelerator):  # also of a rank that torchrun or srun started
        raise AssemblyError(flaw)
    if config.trainer.accelerator == "cpu":  # otherwise DeepSpeed would use a GPU if there is one
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    make = build(config, "trainer")
    try:
        trainer = make(**arguments)
    except (MisconfigurationException, ValueError) as error:
        raise AssemblyError(f"trainer (accelerator={config.trainer.accelerator}): {first_line(error)}") from error
    if flaw := precision_flaw(trainer.precision):  # also of a plugin, or of a trainer that sets it itself
        raise AssemblyError(flaw)
    return trainer


def device_of(config: DictConfig) -> torch.device:
    """Returns the trainer's device on this rank, and makes a CUDA device the current one.

    Outside a fit, a policy must be moved there: it is loaded on the CPU, and is on the CPU again after a fit.
    """
    trainer = make_trainer(config, logger=False, enable_checkpointing=False, enable_progress_bar=False)
    device = trainer.strategy.root_device
    if device.type == "cuda":
        torch.cuda.set_device(device)
    return device


def idle(device: torch.device, gpus: int, *, taken: int) -> str | None:
    """Returns a line on the GPUs that a run on ``device`` leaves idle; ``gpus``: in the machine, ``taken``: used."""
    if device.type == "cpu" and gpus:
        return f"GPUs of this machine that stand idle: {gpus}; the trainer's device is the CPU (trainer=gpu takes one)"
    if device.type == "cuda" and gpus > taken:
        return f"GPUs that this run does not use: {gpus - taken} of {gpus} (trainer.devices={gpus} takes all)"
    return None
