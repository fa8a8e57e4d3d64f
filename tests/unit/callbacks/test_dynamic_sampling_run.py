"""Dynamic sampling in a real trainer, with our own engine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import torch
from torch.utils.data import DataLoader

from callbacks.dynamic_sampling import equal_groups, verified_groups
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import tiny_llama, train_tokenizer
from contrastive_reasoning.rollout import Engine
from contrastive_reasoning.tasks.base import Problem, Verdict
from datamodules.reasoning_prompts import ProblemBatch
from tests.unit.callbacks.sampling_kit import Numbered, Silent, callback


class Learner(L.LightningModule):
    """Keeps what it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        tokenizer = train_tokenizer([problem.prompt for problem in Numbered().posed], vocab_size=270)
        self.policy = CausalLMPolicy(
            model=tiny_llama(tokenizer, hidden_size=16),
            tokenizer=tokenizer,
            compute_dtype=torch.float32,
            chat_template=False,
        )
        self.reward = Silent()
        self.rollout_step = 0
        self.trained: list[ProblemBatch] = []

    def training_step(self, batch: Any, batch_idx: int) -> None:
        self.trained.append(batch)
        self.rollout_step += 1

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.0)


class ByLetters(Numbered):
    """Right is a text whose letters add up to an even number: a random policy writes both."""

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return super().verify(problem, "right" if sum(map(ord, completion)) % 2 == 0 else "wrong")


def test_in_a_trainer_with_our_own_engine(tmp_path: Path) -> None:
    module, task = Learner(), ByLetters()
    batches: Any = DataLoader(task.posed[:6], batch_size=3, collate_fn=ProblemBatch)  # pyright: ignore
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[callback(Engine(max_batch_tokens=1000), group_size=2, task=task, max_refills=8)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        default_root_dir=tmp_path,
    )
    trainer.fit(module, batches)
    for batch in module.trained:
        assert batch.rollouts is not None
        assert len(batch.rollouts) == 6
        assert equal_groups(verified_groups(task, batch.rollouts)) == []
        assert batch.problems == tuple(batch.rollouts.problems)
        assert (batch.rollouts.old_log_probs[batch.rollouts.mask] < 0).all()
    assert float(trainer.callback_metrics["train/rollout/refilled_groups"]) > 0
