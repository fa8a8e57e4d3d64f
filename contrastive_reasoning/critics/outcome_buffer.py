"""A bounded buffer of the states that a policy visited lately, each with the success share of the rollouts through it.

A batch is valid for the policy that wrote it, so the oldest batch is removed first. A state that several batches
visited is stored once for each.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.utils._pytree import tree_map

from contrastive_reasoning.critics.base import take
from contrastive_reasoning.ranges import at_least


@dataclass(frozen=True, kw_only=True)
class Outcomes:
    """N states of problems and the results of the rollouts through them; ``share`` and ``visits`` as in ``Examples``.

    The goal of a state is its own problem's target.
    """

    state_actions: Any
    """N states in the critic's own encoding."""
    goals: Any
    """N goals in the critic's own encoding."""
    share: Float[Tensor, " N"]
    visits: Float[Tensor, " N"]

    def __len__(self) -> int:
        return len(self.share)

    def of(self, rows: Int[Tensor, " K"]) -> Outcomes:
        """Returns the outcomes of some rows, repeats allowed."""
        return Outcomes(**{name: take(column, rows) for name, column in vars(self).items()})


def join_outcomes(parts: Sequence[Outcomes]) -> Outcomes:
    """Concatenates at least one part, in order."""
    columns = [vars(part) for part in parts]
    return Outcomes(
        **{name: tree_map(lambda *tensors: torch.cat(tensors), *[own[name] for own in columns]) for name in columns[0]}
    )


class OutcomeBuffer:
    """The outcomes of the last ``batches`` rollout batches. Raises ValueError: ``batches`` is below 1."""

    def __init__(self, *, batches: int) -> None:
        at_least(1, buffer_batches=batches)
        self._batches: deque[Outcomes] = deque(maxlen=batches)
        """Oldest first."""

    def __len__(self) -> int:
        """The number of states."""
        return sum(map(len, self._batches))

    def add(self, outcomes: Outcomes) -> None:
        """Stores a batch as the newest."""
        self._batches.append(outcomes)

    def draw(self, count: int, rng: np.random.Generator) -> Outcomes:
        """Draws ``count`` states uniformly, repeats allowed. Raises ValueError: the buffer is empty."""
        if not len(self):
            raise ValueError("the outcome buffer is empty: no states were added yet")
        return join_outcomes(self._batches).of(torch.from_numpy(rng.integers(0, len(self), count)))

    def state_dict(self) -> dict[str, Any]:
        return {"batches": [dict(vars(batch)) for batch in self._batches]}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._batches.clear()
        self._batches.extend(Outcomes(**columns) for columns in state["batches"])
