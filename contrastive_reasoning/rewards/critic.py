"""A pretrained contrastive critic as a reward: the value of a step is σ(f(s, a, g) / τ), with g the problem's own goal.

For an ensemble, f is the members' mean. Their disagreement over the steps after which a move is left is logged.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from contrastive_reasoning.critics.base import is_ensemble, members_of, rows_of, take, values_states
from contrastive_reasoning.critics.checkpoint import load_critic_weights
from contrastive_reasoning.critics.ensemble import EnsembleCritic, disagreement
from contrastive_reasoning.distributed import gather
from contrastive_reasoning.ranges import above, at_least
from contrastive_reasoning.rewards.base import Credit, Reward, parts_of, refuse_learning
from contrastive_reasoning.rewards.step_metrics import Judged, step_metrics
from contrastive_reasoning.rewards.step_values import (
    FINISHED,
    Steps,
    StepValue,
    add_step_credit,
    depth_of,
    legal_steps,
    read_steps,
    start_of,
    start_steps,
)
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Problem, Step, Task

FRESH = "fresh"
"""In place of a checkpoint: the critic's initial weights, for a critic that is trained during GRPO alone."""


class Query(NamedTuple):
    """Steps of one completion that the critic scores."""

    problem: Problem
    completion: str
    steps: Sequence[Step]


@dataclass(kw_only=True, eq=False)
class CriticReward:
    """``outcome`` plus ``weight`` times the mean value of the legal steps under a frozen critic.

    A plain object that owns its critic: no module registers it and no optimizer contains it. The critic follows the
    rollouts' device.

    Raises:
        ValueError: a temperature or batch size that is not positive, or a checkpoint that does not fit.
        TypeError: the critic is not a torch module.
    """

    outcome: Reward
    task: Task
    critic: Any
    """A ``Critic``; its weights are replaced by the checkpoint's."""
    checkpoint: str | None
    """Folder of a pretrained critic, or ``FRESH``. With None the reward can be built but not called."""
    weight: float
    """Of the mean step value in the reward of the rollout."""
    temperature: float
    """τ of the loss that the critic was trained with, which took f/τ."""
    batch_size: int
    """Pairs per forward pass; tokens, for a critic that reads text."""

    values_steps = True
    """It values starts too if its critic values states."""

    def __post_init__(self) -> None:
        if not isinstance(self.critic, nn.Module):
            raise TypeError(f"the critic must be a torch module, got {type(self.critic).__name__}")
        above(0, temperature=self.temperature)
        at_least(1, batch_size=self.batch_size)
        refuse_learning("CriticReward", self.outcome)
        self.critic.requires_grad_(False).eval()
        if self.checkpoint is not None and self.checkpoint != FRESH:
            load_critic_weights(self.critic, self.checkpoint)

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        steps = read_steps(self.task, rollouts)
        logits, starts = self.state_logits(rollouts, steps.legal)
        values = on_steps(steps.legal, probabilities(logits))
        chances = None if starts is None else probabilities([starts])[0]
        return self.credit(rollouts, steps, logits, values, chances, weight=self.weight)

    def credit(
        self,
        rollouts: RolloutBatch,
        steps: Steps,
        logits: Sequence[Float[Tensor, "M _"]],
        values: Sequence[Sequence[StepValue]],
        starts: Sequence[float] | None,
        *,
        weight: float,
    ) -> Credit:
        """See ``LogitSource``; for an ensemble the metrics contain its disagreement."""
        credit, illegal = self.outcome(rollouts), steps.illegal
        credit = add_step_credit(credit, rollouts, values, illegal=illegal, name="critic", weight=weight, starts=starts)
        if not isinstance(self.critic, EnsembleCritic):
            return credit
        apart = disagreement(torch.cat(gather(_undecided_logits(rollouts, logits, values)), dim=1))  # all ranks
        return replace(credit, metrics={**credit.metrics, "critic/disagreement": apart})

    def step_values(self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]) -> list[list[StepValue]]:
        """Returns σ(f/τ) of every step of every rollout."""
        return on_steps(steps, probabilities(self.state_logits(rollouts, steps)[0]))

    def state_logits(
        self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]
    ) -> tuple[Sequence[Float[Tensor, "M _"]], Float[Tensor, "M P"] | None]:
        """Returns f/τ of every step of every rollout, and of each problem before any step, under each of M members.

        M is 1 for a single critic. The starts are None if the critic values no states or a start is missing. States are
        scored in one pass, and each once per problem, because the completions of a group share states.

        Raises RuntimeError: the critic was built without a checkpoint.
        """
        device, size = rollouts.completion_ids.device, rollouts.group_size
        if not values_states(self.critic):
            queries = [Query(rollouts.problem_of(row), rollouts.texts[row], legal) for row, legal in enumerate(steps)]
            return self._score(queries, device), None
        starts = [start_of(problem) for problem in rollouts.problems]
        states = [{} if start is None else {_numbers(start): start} for start in starts]
        reached = [[_numbers(step) for step in legal] for legal in steps]
        for row, legal in enumerate(steps):
            states[row // size].update(zip(reached[row], legal, strict=True))
        queries = [
            Query(problem, "", list(own.values())) for problem, own in zip(rollouts.problems, states, strict=True)
        ]
        scores = torch.cat(self._score(queries, device), dim=1)
        keys = ((group, numbers) for group, own in enumerate(states) for numbers in own)
        place = {key: index for index, key in enumerate(keys)}
        of_steps = [place[row // size, numbers] for row, own in enumerate(reached) for numbers in own]
        logits = scores[:, of_steps].split([len(own) for own in reached], dim=1)
        of_starts = [place[group, _numbers(start)] for group, start in enumerate(starts) if start is not None]
        return logits, scores[:, of_starts] if len(of_starts) == len(starts) else None

    @torch.no_grad()
    def _score(self, queries: Sequence[Query], device: torch.device) -> list[Tensor]:
        """Returns f/τ of the steps of every query, each (M, steps)."""
        if self.checkpoint is None:
            raise RuntimeError("reward.checkpoint is null: train a critic first, or name the folder of a trained one")
        self.critic.to(device)
        encoded = {
            index: self.critic.encode_steps(query.problem, query.completion, query.steps)
            for index, query in enumerate(queries)
            if query.steps
        }
        scores = [torch.zeros(len(members_of(self.critic)), 0)] * len(queries)
        # texts of one completion are padded to its longest, so only encodings of equal width can be joined
        alike: dict[tuple[torch.Size, ...], list[int]] = defaultdict(list)
        for index, pairs in encoded.items():
            alike[tuple(part.shape[1:] for part in tree_leaves(pairs))].append(index)
        for indices in alike.values():
            logits = self._logits(tree_map(lambda *parts: torch.cat(parts), *[encoded[i] for i in indices]), device)
            parts = torch.split(logits, [len(queries[index].steps) for index in indices], dim=1)
            for index, part in zip(indices, parts, strict=True):
                scores[index] = part
        return scores

    def _logits(self, pairs: tuple[Any, Any], device: torch.device) -> Float[Tensor, "M N"]:
        """Returns f/τ of N state–actions, each with its own goal."""
        pieces = []
        for rows in torch.arange(rows_of(pairs)).split(max(1, self.batch_size // tokens_of_a_pair(pairs))):
            chunk = tree_map(lambda part: part.to(device), take(pairs, rows))
            many = isinstance(self.critic, EnsembleCritic)
            pieces.append(self.critic.member_pairs(*chunk) if many else self.critic.pairs(*chunk)[None])
        return (torch.cat(pieces, dim=1).float() / self.temperature).cpu()


def tokens_of_a_pair(pairs: tuple[Any, Any]) -> int:
    """Returns the number of tokens of each state–action's text; 1 for a critic that reads numbers."""
    texts = pairs[0] if isinstance(pairs[0], Mapping) else {}
    return max([ids.shape[1] for name, ids in texts.items() if name.endswith("input_ids")], default=1)


def probabilities(logits: Sequence[Float[Tensor, "M _"]]) -> list[list[float]]:
    """Returns σ of the members' mean, row by row."""
    if not logits:
        return []
    values = torch.cat(list(logits), dim=1).mean(dim=0).sigmoid()
    return [part.tolist() for part in values.split([row.shape[1] for row in logits])]


def on_steps(steps: Sequence[Sequence[Step]], values: Sequence[Sequence[float]]) -> list[list[StepValue]]:
    """Pairs each step with its value."""
    return [list(zip(legal, row, strict=True)) for legal, row in zip(steps, values, strict=True)]


def _undecided_logits(
    rollouts: RolloutBatch, logits: Sequence[Float[Tensor, "M _"]], values: Sequence[Sequence[StepValue]]
) -> Float[Tensor, "M N"]:
    """Returns the logits of the steps after which a move is left; finished states need no critic."""
    left = [
        depth_of(step, index, start) != FINISHED
        for row, start in zip(values, start_steps(rollouts), strict=True)
        for index, (step, _) in enumerate(row)
    ]
    return torch.cat(list(logits), dim=1).cpu()[:, torch.tensor(left, dtype=torch.bool)]


def _numbers(step: Step) -> tuple[int, ...]:
    return tuple(sorted(step.state))


def critic_within(reward: Any) -> CriticReward:
    """Returns the part of a reward, at any depth, whose critic can learn from states.

    Raises ValueError: there is none, there are several, or the critic is an ensemble or reads more than states.
    """
    found = [part for part in parts_of(reward) if isinstance(part, CriticReward)]
    if len(found) != 1:
        raise ValueError(f"an online critic is the one critic of the reward, which has {len(found)}: use reward=critic")
    refuse_untrainable(type(found[0].critic), of_states=values_states(found[0].critic))
    return found[0]


def refuse_untrainable(kind: type, *, of_states: bool) -> None:
    """Raises ValueError if no online critic can be of this class; ``of_states``: it values states."""
    use = "use critic=joint or critic=numeric_v2"
    if is_ensemble(kind):
        raise ValueError(
            f"an online critic learns by one loss, and {kind.__name__} is an ensemble, whose members learn each by its "
            f"own: {use}"
        )
    if not of_states:
        raise ValueError(f"an online critic reads states, {kind.__name__} reads more: {use}")


def verdict_auroc(reward: CriticReward, task: Task, rollouts: RolloutBatch) -> float | None:
    """Returns the AUROC of the critic's values of states against the verdict on the completion of each state.

    States are compared within problem and depth, as in ``steps/auroc_siblings``. The result is None if no problem has
    states of one depth in both correct and wrong completions. States of one number are left out, because there the
    value is the verdict. All ranks must call this.
    """
    valued = reward.step_values(rollouts, legal_steps(task, rollouts))
    judged = [
        [Judged(value, len(step.state), finished=len(step.state) == FINISHED) for step, value in row] for row in valued
    ]
    seen = step_metrics(judged, [[]] * len(judged), verdicts_of(task, rollouts), rollouts.group_size)
    return seen.get("steps/auroc_siblings")
