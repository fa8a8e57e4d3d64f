"""What an advantage is: rewards seen relative to the group, spread over the tokens of the completion."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.rewards.base import Credit


@runtime_checkable
class Advantage(Protocol):
    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        """The advantage of every token; 0 outside ``mask`` and on the rollouts that the reward failed on."""
        ...


@runtime_checkable
class StatefulAdvantage(Advantage, Protocol):
    """An advantage that remembers earlier batches: called once for each, its state is in the checkpoint."""

    @property
    def metrics(self) -> Mapping[str, float]:
        """What it has to say of the last batch, as ``room/quantity``; logged under ``train/``."""
        ...

    def state_dict(self) -> dict[str, Any]: ...

    def load_state_dict(self, state: Mapping[str, Any]) -> None: ...


def refuse_memory(owner: str, outcome: Advantage) -> None:
    """An advantage that remembers batches must not lie in one that does not: its state would be in no checkpoint.

    Raises:
        ValueError: naming the one that remembers.
    """
    if isinstance(outcome, StatefulAdvantage):
        inner = type(outcome).__name__
        raise ValueError(f"{inner} remembers earlier batches, so {owner} cannot hold it: make {owner} part of {inner}")


def by_group(values: Float[Tensor, " B"], group_size: int) -> Float[Tensor, "P G"]:
    """Prompt-major values, one row per group.

    Raises:
        ValueError: for groups of fewer than 2 (nothing to compare with) or a batch that is not whole groups.
    """
    if group_size < 2:
        raise ValueError(f"group_size must be at least 2 (rollouts are compared within their group), got {group_size}")
    if values.shape[0] % group_size:
        raise ValueError(f"{values.shape[0]} rollouts are not whole groups of {group_size}")
    return values.view(-1, group_size)


def among_rewarded(
    credit: Credit, group_size: int, formula: Callable[[Float[Tensor, "P G"]], Float[Tensor, "P G"]]
) -> Float[Tensor, "P G"]:
    """``formula`` of the outcomes of each group; a rollout that the reward failed on is no member of its group.

        outcome    1  0  –  1      formula(1 0 1) = a b c      a  b  0  c

    A group with a failure is a smaller one, of which nothing is left where fewer than two were rewarded.
    """
    outcomes = by_group(credit.outcome, group_size)
    if not credit.failures:
        return formula(outcomes)
    rewarded = torch.ones_like(outcomes, dtype=torch.bool)
    rewarded.view(-1)[list(credit.failures)] = False
    relative = torch.zeros_like(outcomes)
    for row, members in enumerate(rewarded):
        if members.sum() > 1:
            relative[row, members] = formula(outcomes[row, members][None])[0]
    return relative


def centred(groups: Float[Tensor, "P G"]) -> Float[Tensor, "P G"]:
    """Each group minus its mean; exactly 0 where all of a group is equal (a rounded mean may differ from its terms)."""
    varied = groups.amax(dim=1, keepdim=True) != groups.amin(dim=1, keepdim=True)
    return (groups - groups.mean(dim=1, keepdim=True)) * varied


def on_tokens(values: Float[Tensor, "P G"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B T"]:
    """One number per rollout, repeated on each of its tokens."""
    return values.reshape(-1, 1) * mask
