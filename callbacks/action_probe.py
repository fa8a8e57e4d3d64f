"""Whether a critic reads the action at all: its accuracy once more, with the actions of other trajectories.

The published V1 failed here: its goals are reachable from the start whatever was done, and shuffling changed nothing.
Where there is no start beside the action (V2, joint, text), the whole state–action is shuffled and accuracy falls.
"""

from __future__ import annotations

from typing import Any

import lightning as L
import torch
from torch import Tensor

from contrastive_reasoning.critics import CriticBatch, rows_of, take
from contrastive_reasoning.losses import categorical_accuracy, mean_over
from contrastive_reasoning.policies.sharding import gathered


class ActionProbe(L.Callback):
    """Logs ``val/probe/accuracy_actions_shuffled``, beside ``val/critic/categorical_accuracy``; only watches."""

    @torch.no_grad()
    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not isinstance(batch, CriticBatch):
            return
        module: Any = pl_module
        with gathered(module.critic):
            logits = module.critic(with_shuffled_actions(batch.state_actions), batch.goals).float()
        # among the pairs that the accuracy beside it is taken over: as many to choose from
        right = categorical_accuracy(logits, batch.positive, module.counted(batch, "validation", batch_idx)).float()
        accuracy = mean_over(right, batch.positive.any(dim=1))
        pl_module.log(
            "val/probe/accuracy_actions_shuffled",
            accuracy,
            batch_size=rows_of(batch.state_actions),
            add_dataloader_idx=False,
        )


def with_shuffled_actions(state_actions: Any) -> Any:
    """Every anchor gets the next one's action: a shuffle without chance, in which nobody keeps their own.

    Args:
        state_actions: (A, 2, W) start and action, of which the action moves; any other encoding moves as a whole.
    """
    following = torch.arange(rows_of(state_actions)).roll(-1)
    if isinstance(state_actions, Tensor) and state_actions.ndim == 3:
        return torch.stack([state_actions[:, 0], state_actions[following, 1]], dim=1)
    return take(state_actions, following)
