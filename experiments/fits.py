"""What the training stages do: build a module and its data, fit, and leave what later stages need."""

from __future__ import annotations

import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning import LightningDataModule, LightningModule, Trainer
from lightning.pytorch.callbacks import Callback, Checkpoint, ModelCheckpoint
from omegaconf import DictConfig, OmegaConf

from contrastive_reasoning.critics.checkpoint import save_critic
from experiments.assemble import build
from experiments.interrupt import Interrupted
from experiments.rollout_checkpoint import RolloutCheckpoint
from experiments.run_folder import RunFolderLogger
from experiments.wiring import CRITIC, POLICY

LAST_CHECKPOINT = Path("checkpoints") / "last.ckpt"
PARTS = {
    "warm_start": ("warm_start.module", "warm_start.datamodule"),
    "critic": ("pretraining", "datamodule"),
    "grpo": ("module", "prompts", "rollout", "online"),
    "evaluate": ("suite", "policy"),
}
"""The nodes of the configuration that each stage builds: what learns, its data, what acts beside it."""


def warm_start(config: DictConfig, folder: Path, folders: Mapping[str, Path]) -> Mapping[str, Any]:
    """Teach a fresh policy the format and the rules; a pretrained one is taken as it is."""
    if config.policy.pretrained is not None:
        print(f"warm_start: the policy comes from {config.policy.pretrained}")
        return {"policy": config.policy.pretrained}
    module, data = (build(config, key) for key in PARTS["warm_start"])
    fit(config, "warm_start", folder, module, data, acting=[])
    module.policy.save(folder / POLICY)
    return {"policy": POLICY}


def critic(config: DictConfig, folder: Path, folders: Mapping[str, Path]) -> Mapping[str, Any]:
    """Pretrain the critic and measure it against the oracle."""
    module, data = (build(config, key) for key in PARTS["critic"])
    fit(config, "critic", folder, module, data, acting=[])
    description: Any = OmegaConf.to_container(config.critic, resolve=True)
    save_critic(module.critic, folder / CRITIC, description)
    return {"critic": CRITIC}


def grpo(config: DictConfig, folder: Path, folders: Mapping[str, Path]) -> Mapping[str, Any]:
    """Train the policy by rollouts, rewards and the objective."""
    module, data, *acting = (build(config, key) for key in PARTS["grpo"])
    fit(config, "grpo", folder, module, data, acting=acting)
    module.policy.save(folder / POLICY)
    return {"policy": POLICY}


def fit(
    config: DictConfig,
    stage: str,
    folder: Path,
    module: LightningModule,
    data: LightningDataModule,
    acting: list[Callback],
) -> None:
    """One Lightning fit of ``budget.<stage>.steps`` batches, resumed where a checkpoint was left.

    Raises:
        Interrupted: on Ctrl-C.
    """
    trainer = build_trainer(config, stage, folder, acting)
    last = folder / LAST_CHECKPOINT
    resume = {"ckpt_path": str(last), "weights_only": True} if last.is_file() else {}
    on_interrupt = signal.getsignal(signal.SIGINT)
    try:
        if not resume:  # curves begin before the first update
            trainer.validate(module, datamodule=data, verbose=False)
        trainer.fit(module, datamodule=data, **resume)
    except SystemExit as stop:  # how Lightning ends on Ctrl-C, after its callbacks and loggers closed
        signal.signal(signal.SIGINT, on_interrupt)
        left = f"checkpoint {last}" if last.is_file() else "no checkpoint yet"
        raise Interrupted(f"{stage}: stopped at step {trainer.global_step} ({left})") from stop


def build_trainer(config: DictConfig, stage: str, folder: Path, acting: list[Callback]) -> Trainer:
    """The trainer of a stage: acting callbacks first, then those that watch, then the checkpoint."""
    watching = [*build(config, "callbacks.every").values(), *build(config, f"callbacks.{stage}").values()]
    make = build(config, "trainer")
    budget = config.budget[stage]
    optimizer_steps = budget.steps * budget.get("updates", 1) * budget.get("minibatches", 1)
    return make(
        max_epochs=1,
        max_steps=optimizer_steps,  # what Lightning counts
        val_check_interval=budget.evaluate_every,
        check_val_every_n_epoch=None,
        callbacks=[*acting, *watching, checkpoint(stage, folder, budget.checkpoint_every)],
        logger=RunFolderLogger(folder=folder),
        default_root_dir=str(folder),
    )


def checkpoint(stage: str, folder: Path, every: int) -> Checkpoint:
    """``checkpoints/last.ckpt``, replaced every ``every`` steps: what a stopped stage goes on from."""
    last = folder / LAST_CHECKPOINT
    if stage == "grpo":
        return RolloutCheckpoint(path=last, every=every)
    return ModelCheckpoint(
        dirpath=str(last.parent),
        filename=last.stem,
        save_top_k=1,
        every_n_train_steps=every,
        save_on_train_epoch_end=False,
        enable_version_counter=False,
    )
