"""A pretrained contrastive critic as a reward: a step is worth σ(f(s, a, g) / τ), g the problem's own goal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from contrastive_reasoning.critics.base import Critic
from contrastive_reasoning.critics.checkpoint import load_critic_weights
from contrastive_reasoning.critics.encodings import rows_of, take
from contrastive_reasoning.rewards.base import Credit, Reward, refuse_learning
from contrastive_reasoning.rewards.shaping import StepValue, legal_steps, shaped
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Step, Task


class CriticReward:
    """``outcome`` plus ``weight`` times the mean value of the legal steps under a frozen critic.

    A plain object that owns its critic: nothing registers it, no optimizer sees it; it follows the rollouts' device.

    Args:
        outcome: the reward that is shaped.
        task: finds the steps in a completion.
        critic: a built critic; its weights are replaced by the checkpoint's.
        checkpoint: folder of a pretrained critic. Without one the reward can be built but not called.
        weight: of the mean step value in the reward of the rollout.
        temperature: τ, that of the loss the critic was trained with, which saw f/τ.
        batch_size: pairs per forward pass.

    Raises:
        ValueError: a temperature or batch size that is not positive, or a checkpoint that does not fit.
        TypeError: the critic is no torch module.
    """

    def __init__(
        self,
        *,
        outcome: Reward,
        task: Task,
        critic: Critic,
        checkpoint: str | None,
        weight: float,
        temperature: float,
        batch_size: int,
    ) -> None:
        if not isinstance(critic, nn.Module):
            raise TypeError(f"the critic must be a torch module, got {type(critic).__name__}")
        if not temperature > 0:
            raise ValueError(f"temperature must be positive, got {temperature}")
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        refuse_learning("CriticReward", outcome)
        self.outcome = outcome
        self.task = task
        self.critic: Any = critic.requires_grad_(False).eval()
        self.checkpoint = checkpoint
        self.weight = weight
        self.temperature = temperature
        self.batch_size = batch_size
        if checkpoint is not None:
            load_critic_weights(self.critic, checkpoint)

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        if self.checkpoint is None:
            raise RuntimeError("reward.checkpoint is null: train a critic first, or name the folder of a trained one")
        values = self.step_values(rollouts, legal_steps(self.task, rollouts))
        return shaped(self.outcome(rollouts), rollouts, values, name="critic", weight=self.weight)

    @torch.no_grad()
    def step_values(self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]) -> list[list[StepValue]]:
        """σ(f/τ) of every step of every rollout."""
        self.critic.to(rollouts.completion_ids.device)
        encoded = {
            row: self.critic.encode_steps(rollouts.problem_of(row), rollouts.texts[row], those)
            for row, those in enumerate(steps)
            if those
        }
        scores: dict[int, list[float]] = {}
        for rows, state_actions, goals in _alike(encoded):
            values = self._values(state_actions, goals, rollouts.completion_ids.device)
            parts = torch.split(values, [len(steps[row]) for row in rows])
            scores.update({row: part.tolist() for row, part in zip(rows, parts, strict=True)})
        return [list(zip(those, scores.get(row, []), strict=True)) for row, those in enumerate(steps)]

    def _values(self, state_actions: Any, goals: Any, device: torch.device) -> Tensor:
        chunks = torch.arange(rows_of(goals)).split(self.batch_size)
        pieces = [
            self.critic.pairs(_to(take(state_actions, rows), device), _to(take(goals, rows), device)) for rows in chunks
        ]
        return (torch.cat(pieces).float() / self.temperature).sigmoid().cpu()


def _alike(encoded: dict[int, tuple[Any, Any]]) -> Iterator[tuple[list[int], Any, Any]]:
    """Encodings of the same shape, joined along their first axis, with the rows they come from."""
    groups: dict[Any, list[int]] = defaultdict(list)
    for row, pair in encoded.items():
        groups[tuple(_shape(part) for part in pair)].append(row)
    for rows in groups.values():
        yield rows, _joined([encoded[row][0] for row in rows]), _joined([encoded[row][1] for row in rows])


def _shape(encoding: Any) -> Any:
    if isinstance(encoding, dict):
        return tuple((name, tuple(part.shape[1:])) for name, part in sorted(encoding.items()))
    return tuple(encoding.shape[1:])


def _joined(encodings: Sequence[Any]) -> Any:
    if isinstance(encodings[0], dict):
        return {name: torch.cat([encoding[name] for encoding in encodings]) for name in encodings[0]}
    return torch.cat(list(encodings))


def _to(encoding: Any, device: torch.device) -> Any:
    return {k: v.to(device) for k, v in encoding.items()} if isinstance(encoding, dict) else encoding.to(device)
