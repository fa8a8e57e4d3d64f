"""The interface of advantages: rewards relative to the group, assigned to the tokens of the completion."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.rewards.base import Credit, StepCredit


@runtime_checkable
class Advantage(Protocol):
    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        """Returns the advantage of every token; 0 outside ``mask`` and on rollouts on which the reward failed."""
        ...


@runtime_checkable
class StatefulAdvantage(Advantage, Protocol):
    """An advantage that remembers earlier batches. It is called once per batch, and its state is in the checkpoint."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """Quantities of the last batch, as ``source/quantity``; logged under ``train/``."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def layers(advantage: Any) -> Iterator[Any]:
    """Yields the advantage and, recursively, the one that it holds as ``advantage``."""
    while advantage is not None:
        yield advantage
        advantage = getattr(advantage, "advantage", None)


def refuse_memory(owner: str, outcome: Advantage) -> None:
    """Raises ValueError, with its name, for a stateful advantage inside one that is stateless.

    No checkpoint would contain the inner state.
    """
    if isinstance(outcome, StatefulAdvantage):
        inner = type(outcome).__name__
        raise ValueError(f"{inner} remembers earlier batches, so {owner} cannot hold it: make {owner} part of {inner}")


def by_group(values: Float[Tensor, " B"], group_size: int) -> Float[Tensor, "P G"]:
    """Reshapes prompt-major values to one row per group.

    Raises ValueError for groups of fewer than 2 (nothing to compare with) or a batch that is not whole groups.
    """
    if group_size < 2:
        raise ValueError(f"group_size must be at least 2 (rollouts are compared within their group), got {group_size}")
    if values.shape[0] % group_size:
        raise ValueError(f"{values.shape[0]} rollouts are not whole groups of {group_size}")
    return values.view(-1, group_size)


def with_illegal(credit: Credit) -> list[list[StepCredit]]:
    """Returns the legal and illegal steps of every rollout in order of writing.

    A rollout on which the reward failed has none: it has no advantage, and its steps are not compared with others.
    """
    steps = credit.steps or []
    illegal = credit.illegal or [[]] * len(steps)
    return [
        [] if index in credit.failures else sorted([*row, *forbidden], key=lambda step: step.first_token)
        for index, (row, forbidden) in enumerate(zip(steps, illegal, strict=True))
    ]


def on_step_tokens(
    steps: Sequence[Sequence[StepCredit]], values: Float[Tensor, " N"], mask: Bool[Tensor, "B T"]
) -> Float[Tensor, "B T"]:
    """Assigns ``values``, in order of rollout and writing, to the tokens of each step; 0 outside every step."""
    remaining = iter(values.tolist())
    on_tokens = torch.zeros(mask.shape, dtype=values.dtype)
    for row, credits in enumerate(steps):
        for step in credits:
            on_tokens[row, step.first_token : step.last_token + 1] += next(remaining)
    return on_tokens.to(values.device) * mask
