"""Rollout batches of which a test gives only the parts that it reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Problem


def rollout_batch(problems: Sequence[Problem], mask: Tensor, **given: Any) -> RolloutBatch:
    """Rollouts with prompts of one token; what is not given is zero, empty or absent.

    Args:
        problems: one for each group.
        mask: which tokens each completion has, (B, T).
        given: other fields of the batch.
    """
    rows, prompts = len(mask), len(problems)
    plain: dict[str, Any] = {
        "prompt_ids": torch.ones(prompts, 1, dtype=torch.long),
        "prompt_mask": torch.ones(prompts, 1, dtype=torch.bool),
        "completion_ids": torch.zeros(mask.shape, dtype=torch.long),
        "old_log_probs": torch.zeros(mask.shape),
        "temperature": 1.0,
        "pooled": None,
        "texts": [""] * rows,
        "token_spans": [[]] * rows,
        "finish_reasons": ["stop"] * rows,
        "group_size": rows // prompts,
    }
    return RolloutBatch(problems=problems, mask=mask, **plain | given)
