"""What a critic learns in between: optimizer steps, half of each from states that were met, half from pretraining.

Replay keeps it from forgetting the states that the policy no longer visits, and what exhaustive search taught there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

import numpy as np
import torch
from torch import Tensor, nn

from contrastive_reasoning.critics import CriticBatch, rows_of
from contrastive_reasoning.critics.met_states import MetStates, met_batch
from contrastive_reasoning.critics.pairing import Pairing
from contrastive_reasoning.distributed import LeftOut, average_gradients, bad_number, finite_step
from contrastive_reasoning.losses import ContrastiveLoss
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.rollout.sampling import derived_seed


class Stream(Protocol):
    """Pretraining's data: batches by number, without end."""

    def batch(self, number: int) -> CriticBatch: ...


class Optimizing(Protocol):
    """Builds an optimizer and knows the learning rate of every step."""

    def __call__(self, parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer: ...

    def set_learning_rate(self, optimizer: torch.optim.Optimizer, step: int) -> float: ...


class CriticLessons:
    """Trains ``critic``, once it has begun; everything drawn is a function of (seed, step, rank).

    Args:
        stream: what the critic was pretrained on.
        first_replayed: number of the stream's batch that is read first: one that pretraining has not seen.
        pairing: goals and pairs of the states that were met.
        goal_range: lowest and highest value that may be a goal by hindsight.
        loss: pretraining's; it sees all pairs that count.
        optimizer: its schedule counts the steps taken here.
        steps: of a lesson; each reads a batch of the stream and as many states that were met.
        max_skipped_steps: that may be left out because a number is not finite.
        seed: of all draws.

    Raises:
        ValueError: ``steps`` is below 1, ``max_skipped_steps`` negative.
    """

    critic: Any
    """The copy that learns."""

    def __init__(
        self,
        *,
        stream: Stream,
        first_replayed: int,
        pairing: Pairing,
        goal_range: Sequence[int],
        loss: ContrastiveLoss,
        optimizer: Optimizing,
        steps: int,
        max_skipped_steps: int,
        seed: int,
    ) -> None:
        if steps < 1:
            raise ValueError(f"online.lessons.steps must be at least 1, got {steps}")
        self.stream = stream
        self.first_replayed = first_replayed
        self.pairing = pairing
        self.goal_range = (goal_range[0], goal_range[1])
        self.loss = loss
        self.optimizer = optimizer
        self.steps = steps
        self.seed = seed
        self.taken = 0
        """Steps so far, those that were left out too: what a step draws follows from its number."""
        self.skipped = LeftOut("the critic that learns beside the policy", most=max_skipped_steps)
        """Those that were left out, on every rank, because a loss or a gradient was not finite."""

    def begin(self, critic: nn.Module) -> None:
        """Take a critic as the one that learns; it is changed in place."""
        self.critic = critic.requires_grad_(True).eval()
        self._stepper = self.optimizer(critic.parameters())
        self.taken = self.skipped.count = 0

    def lesson(self, met: MetStates, *, device: torch.device, rank: int, ranks: int) -> float | None:
        """Several optimizer steps; the loss, half of either kind, of the last that was not left out.

        Raises:
            TooManyLeftOut: with the two batches of a step that is one too many.
        """
        self._move(device)
        self.critic.train()
        losses = [self._step(met, device, rank, ranks) for _ in range(self.steps)]
        self.critic.eval()
        return next((loss for loss in reversed(losses) if loss is not None), None)

    def state_dict(self) -> dict[str, Any]:
        return {
            "critic": self.critic.state_dict(),
            "optimizer": self._stepper.state_dict(),
            "taken": self.taken,
            "skipped": self.skipped.count,
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.critic.load_state_dict(state["critic"])
        self._stepper.load_state_dict(state["optimizer"])
        self.taken = state["taken"]
        self.skipped.count = state.get("skipped", 0)  # a checkpoint from before they were counted

    def _step(self, met: MetStates, device: torch.device, rank: int, ranks: int) -> float | None:
        """The loss; None where the step was left out."""
        seed = derived_seed((self.seed, "critic lessons", self.taken, rank))
        replayed = self.stream.batch(self.first_replayed + self.taken * ranks + rank)
        fresh = self._fresh(met, rows_of(replayed.state_actions), np.random.default_rng(seed))
        with seeded(seed), torch.enable_grad():
            loss = (self._loss(replayed, device) + self._loss(fresh, device)) / 2
            self._stepper.zero_grad()
            loss.backward()
        average_gradients(self.critic.parameters())
        self.optimizer.set_learning_rate(self._stepper, self.taken)
        stepped = finite_step(self._stepper, loss)
        self.taken += 1
        if not stepped:
            self.skipped.add(bad_number(loss=loss), {"replayed": asdict(replayed), "met": asdict(fresh)})
        return loss.item() if stepped else None

    def _fresh(self, met: MetStates, size: int, rng: np.random.Generator) -> CriticBatch:
        return met_batch(met.draw(size, rng), pairing=self.pairing, goal_range=self.goal_range, rng=rng)

    def _loss(self, batch: CriticBatch, device: torch.device) -> Tensor:
        scores = self.critic(batch.state_actions.to(device), batch.goals.to(device))
        return self.loss(scores, batch.positive.to(device), batch.candidate.to(device))

    def _move(self, device: torch.device) -> None:
        """Bring the copy to the rollouts; AdamW's moments, loaded from a checkpoint, do not follow by themselves."""
        if next(self.critic.parameters()).device != device:
            self.critic.to(device)
            self._stepper.load_state_dict(self._stepper.state_dict())
