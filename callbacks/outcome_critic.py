"""Outcome critic: a value network that learns this policy's chance of success from the policy's own rollouts.

    rollouts ──► credit, with the network of the batches before ──► update of the policy
       └───────► (state, target, share of the rollouts through it that succeed) ──► buffer ──► optimizer steps

    L = Σᵢ vᵢ BCE(σ(f(sᵢ, gᵢ)/τ), pᵢ) / Σᵢ vᵢ        pᵢ: share of successes among the vᵢ rollouts of a batch through sᵢ

This supervises a critic without contrast, search or plays: the control of a contrastive critic. The network may be
fresh: ``reward.source.checkpoint=fresh``. It learns in a reward's warm-up, too, so it was fitted before the policy is
updated. A batch is valued before the network learns from it. A reward that calibrates the values keeps the logits
of that time in its curves, so the curves see no value of a state whose outcome the network knew. Validation
problems are not learned from.

``OnlineCritic`` differs: its labels are what moves certify, which holds for any policy, so it keeps states for long.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import lightning as L
import numpy as np
import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map

from callbacks.online_critic import OnlineTraining, OnlineUpdates
from contrastive_reasoning.critics.calibration import cross_entropy
from contrastive_reasoning.critics.outcome_buffer import OutcomeBuffer, Outcomes, join_outcomes
from contrastive_reasoning.distributed import gather
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards.calibrated import success_share, visits_by_state
from contrastive_reasoning.rewards.step_values import legal_steps
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Task


class OutcomeCritic(OnlineTraining):
    """Trains the reward's critic after every rollout batch, on the outcomes of the last ones.

    Args:
        task: finds the steps in a completion, and verifies it.
        updates: trains the critic.
        buffer_batches: how many rollout batches it is trained on.

    Raises:
        ValueError: for a number below 1; at the start of a fit, for a reward whose critic cannot be trained here.
    """

    reads_all_groups = True
    """Among groups that were selected by their verdicts, chances of success are closer to one half."""

    def __init__(self, *, task: Task, updates: OutcomeUpdates, buffer_batches: int) -> None:
        super().__init__(task=task, updates=updates, buffer=OutcomeBuffer(batches=buffer_batches))

    def trained(self) -> nn.Module:
        return self.reward.critic

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Adds the outcomes of the rollouts of all ranks to the buffer, and trains the critic."""
        start, rollouts = perf_counter(), batch.rollouts
        found = [part for part in gather(outcomes_of(rollouts, self.task, self.reward.critic)) if part is not None]
        if found:
            self.buffer.add(join_outcomes(found))
        # every rank draws the same from the same buffer, as one process does
        self.learn(trainer, int(pl_module.rollout_step), rollouts.mask.device, rank=0, ranks=1)
        self.log_state(pl_module, seconds=perf_counter() - start)


def outcomes_of(rollouts: RolloutBatch, task: Task, critic: Any) -> Outcomes | None:
    """Returns the outcomes of each (problem, state) that was visited; None if no rollout was judged."""
    verdicts = verdicts_of(task, rollouts)
    correct = torch.tensor([verdict.correct for verdict in verdicts])
    unjudged = {row for row, verdict in enumerate(verdicts) if not verdict.judged}
    states = visits_by_state(rollouts, legal_steps(task, rollouts), correct, unjudged, starts=True)
    parts: list[Outcomes] = []
    for visits in states:
        state_actions, goals = critic.encode_steps(rollouts.problem_of(visits[0].row), "", [visits[0].step])
        share, count = torch.tensor([success_share(visits)]), torch.tensor([float(len(visits))])
        parts.append(Outcomes(state_actions=state_actions, goals=goals, share=share, visits=count))
    return join_outcomes(parts) if parts else None


@dataclass(kw_only=True, eq=False)
class OutcomeUpdates(OnlineUpdates):
    """Steps on the cross-entropy of visits, L above, over states drawn from the buffer."""

    purpose = "outcome lessons"  # not to be renamed: it seeds the draws
    temperature: float
    """τ, as in the reward."""
    batch_size: int
    """States of a step."""

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(1, **{"online.updates.batch_size": self.batch_size})

    def draw(self, buffer: OutcomeBuffer, *, seed: int, rank: int, ranks: int) -> dict[str, Outcomes]:
        return {"outcomes": buffer.draw(self.batch_size, np.random.default_rng(seed))}

    def loss_of(self, drawn: Mapping[str, Outcomes], device: torch.device) -> Tensor:
        state_actions, goals, share, visits = (
            tree_map(lambda part: part.to(device), column) for column in vars(drawn["outcomes"]).values()
        )
        return cross_entropy(self.critic.pairs(state_actions, goals).float() / self.temperature, share, visits)
