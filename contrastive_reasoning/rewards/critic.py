"""A pretrained contrastive critic as a reward: a step is worth σ(f(s, a, g) / τ), g the problem's own goal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from contrastive_reasoning.critics.base import Critic, values_states
from contrastive_reasoning.critics.checkpoint import load_critic_weights
from contrastive_reasoning.critics.encodings import rows_of, take
from contrastive_reasoning.rewards.base import Credit, Reward, refuse_learning
from contrastive_reasoning.rewards.shaping import StepValue, legal_steps, shaped, start_of
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Step, Task


class Question(NamedTuple):
    """What the critic is asked: the value of some steps of one completion."""

    problem: Problem
    completion: str
    steps: Sequence[Step]


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
        values, starts = self.step_values(rollouts, legal_steps(self.task, rollouts)), self.start_values(rollouts)
        return shaped(self.outcome(rollouts), rollouts, values, name="critic", weight=self.weight, starts=starts)

    def step_values(self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]) -> list[list[StepValue]]:
        """σ(f/τ) of every step of every rollout."""
        if values_states(self.critic):
            return self._by_state(rollouts, steps)
        asked = [Question(rollouts.problem_of(row), rollouts.texts[row], those) for row, those in enumerate(steps)]
        scores = self._scores(asked, rollouts.completion_ids.device)
        return [list(zip(those, scores[row], strict=True)) for row, those in enumerate(steps)]

    def start_values(self, rollouts: RolloutBatch) -> list[float] | None:
        """σ(f/τ) of each problem before any step; None where the critic cannot tell."""
        starts = [step for problem in rollouts.problems if (step := start_of(problem)) is not None]
        if not values_states(self.critic) or len(starts) < len(rollouts.problems):
            return None
        asked = [Question(problem, "", [start]) for problem, start in zip(rollouts.problems, starts, strict=True)]
        return [value for (value,) in self._scores(asked, rollouts.completion_ids.device)]

    def _by_state(self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]) -> list[list[StepValue]]:
        """Completions of a group meet in the same states: each is asked about once."""
        states: list[dict[tuple[int, ...], Step]] = [{} for _ in rollouts.problems]
        for row, those in enumerate(steps):
            states[row // rollouts.group_size].update({_numbers(step): step for step in those})
        asked = [
            Question(problem, "", list(met.values())) for problem, met in zip(rollouts.problems, states, strict=True)
        ]
        scores = self._scores(asked, rollouts.completion_ids.device)
        found = [dict(zip(met, values, strict=True)) for met, values in zip(states, scores, strict=True)]
        return [
            [(step, found[row // rollouts.group_size][_numbers(step)]) for step in those]
            for row, those in enumerate(steps)
        ]

    @torch.no_grad()
    def _scores(self, asked: Sequence[Question], device: torch.device) -> list[list[float]]:
        """σ(f/τ) of the steps of every question."""
        self.critic.to(device)
        encoded = {
            index: self.critic.encode_steps(question.problem, question.completion, question.steps)
            for index, question in enumerate(asked)
            if question.steps
        }
        scores: list[list[float]] = [[] for _ in asked]
        for indices, state_actions, goals in _alike(encoded):
            values = self._values(state_actions, goals, device)
            parts = torch.split(values, [len(asked[index].steps) for index in indices])
            for index, part in zip(indices, parts, strict=True):
                scores[index] = part.tolist()
        return scores

    def _values(self, state_actions: Any, goals: Any, device: torch.device) -> Tensor:
        chunks = torch.arange(rows_of(goals)).split(self.batch_size)
        pieces = [
            self.critic.pairs(_to(take(state_actions, rows), device), _to(take(goals, rows), device)) for rows in chunks
        ]
        return (torch.cat(pieces).float() / self.temperature).sigmoid().cpu()


def _numbers(step: Step) -> tuple[int, ...]:
    return tuple(sorted(step.state))


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
