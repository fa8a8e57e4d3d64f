"""What comes before the policy learns from rewards, on ranks: critics of numbers and of text, and a warm start."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import torch
from lightning import Callback, LightningDataModule
from torch.utils.data import DataLoader

from contrastive_reasoning.critics import CriticBatch, CriticOracleBatch, EnsembleCritic, LoRATraining, TextCritic
from contrastive_reasoning.critics.encoder import TextEncoder
from contrastive_reasoning.losses import BinaryNCE, InfoNCE, SymmetricInfoNCE, dot
from contrastive_reasoning.policies.pooling import last_pool
from contrastive_reasoning.policies.tiny import tiny_llama, train_tokenizer
from tests.unit.lightning_modules import grpo_kit, test_critic, test_warm_start
from tests.unit.lightning_modules.ranks_kit import STEPS, Known, Result, result, resumed, trainer

LOSSES: dict[str, Any] = {
    "forward": InfoNCE(temperature=1.0),
    "symmetric": SymmetricInfoNCE(temperature=1.0),
    "binary": BinaryNCE(temperature=1.0),
}


class Numbers(LightningDataModule):
    """The pairs of the critic's tests; 63 of them, which two ranks cannot share evenly."""

    def train_dataloader(self) -> DataLoader[Any]:
        return test_critic.loader(odd_pairs(), STEPS)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        return [test_critic.loader(odd_pairs(), 1), test_critic.loader(test_critic.oracle_states(), 1)]


def odd_pairs() -> Any:
    batch = test_critic.pairs()
    parts = (batch.state_actions, batch.positive, batch.candidate)
    batch.state_actions, batch.positive, batch.candidate = (part[1:] for part in parts)
    return batch


class Texts(LightningDataModule):
    """Seven sums of other lengths, each with its result for a goal."""

    def __init__(self, critic: TextCritic) -> None:
        super().__init__()
        self.critic = critic

    def batch(self) -> CriticBatch:
        sums = [(3, 4), (12, 7), (25, 16), (1, 1), (30, 29), (8, 2), (19, 5)]
        positive = torch.eye(len(sums), dtype=torch.bool)
        return CriticBatch(
            state_actions=self.critic.tokenize([f"{a}+{b}={a + b}" for a, b in sums]),
            goals=self.critic.tokenize([f"### Current State: [{a + b}]" for a, b in sums]),
            positive=positive,
            candidate=torch.ones_like(positive),
        )

    def states(self) -> CriticOracleBatch:
        pairs = self.batch()
        known = torch.arange(len(pairs.positive))
        return CriticOracleBatch(
            state_actions=pairs.state_actions,
            goals=pairs.goals,
            label=known % 2 == 0,
            depth=known // 2 % 2 + 1,
            problem=known // 4,
        )

    def train_dataloader(self) -> DataLoader[Any]:
        return test_critic.loader(self.batch(), STEPS)

    def val_dataloader(self) -> list[DataLoader[Any]]:
        return [test_critic.loader(self.batch(), 1), test_critic.loader(self.states(), 1)]


def text_critic() -> TextCritic:
    """Adapters in a tiny Llama, which reads states and goals."""
    tokenizer = train_tokenizer(["12+7=19 ### Current State: [30]"], vocab_size=280)
    tokenizer.padding_side = "right"
    backbone: Any = tiny_llama(tokenizer, hidden_size=32, layers=1).model
    LoRATraining(rank=2, alpha=4.0, dropout=0.0, target_modules="all-linear", seed=0)(backbone)
    return TextCritic(
        encoder=TextEncoder(backbone=backbone, tokenizer=tokenizer, width=32),
        pooling=last_pool,
        dimension=8,
        similarity=dot,
        max_length=64,
        style="annotated",
        goal_text="### Current State: [{target}]",
        seed=0,
    )


def critic_gradients(name: str, loss: str, **changes: Any) -> Result:
    """That of the first update, before it is clipped."""
    gradients = grpo_kit.Gradients()
    return {**critic(name, gradients, loss=loss, **changes), "gradient": gradients.updates[0]}


def critic(
    name: str,
    *callbacks: Callback,
    loss: str,
    negatives: int | None = None,
    trained: Any = None,
    data: LightningDataModule | None = None,
    resume: Path | None = None,
) -> Result:
    # forward InfoNCE leaves a constant per state free: its gradient is rounding, which Adam's epsilon must outweigh
    module = test_critic.module(
        critic=trained, loss=LOSSES[loss], negatives_per_anchor=negatives, epsilon=1e-4, max_skipped_steps=1
    )
    known = Known()
    fitted = trainer(name, STEPS, [*callbacks, known])
    fitted.fit(module, datamodule=data or Numbers(), ckpt_path=resume, weights_only=True)
    return result(module, known)


def critic_of_text(name: str) -> Result:
    trained = text_critic()
    return critic(name, loss="symmetric", trained=trained, data=Texts(trained))


def critics_together(name: str) -> Result:
    """Two members, each by its own loss, on its own bootstrap, with its own negatives."""
    trained = EnsembleCritic(member=test_critic.numeric, size=2, seed=0)
    return critic(name, loss="binary", negatives=5, trained=trained)


def critic_resumed(name: str, folder: Path) -> Result:
    begun = partial(critic, loss="symmetric")
    return resumed(name, folder, begun, partial(begun, trained=test_critic.numeric(seed=9)))


def warm_start(name: str, *callbacks: Callback, seed: int = 0, resume: Path | None = None) -> Result:
    module, known = test_warm_start.module(seed=seed), Known()
    fitted = trainer(name, STEPS, [*callbacks, known])
    fitted.fit(module, datamodule=test_warm_start.data(), ckpt_path=resume, weights_only=True)
    return result(module, known)


def warm_start_resumed(name: str, folder: Path) -> Result:
    return resumed(name, folder, warm_start, partial(warm_start, seed=9))
