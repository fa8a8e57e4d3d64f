"""A trust gate: weights step credit by how well the step values agreed with the verdicts on recent rollouts.

        w_n = w_max · trust · anneal_n
        trust    = clip((AUROC − floor) / span, 0, 1) · (1 − disagreement)     means over the last ``window`` batches
        anneal_n = clip((N − 1 − n) / (N / 3), 0, 1)                           1, then linearly to 0 in the last third

The AUROC is taken within problem and depth (``steps/auroc_siblings``), because a per-step advantage compares those
steps. Values that only separate easy problems from hard ones have a high overall AUROC but are useless as step credit.

n counts the rollout batches that the policy learned from, from 0 to N − 1, without those of a warm-up. Trust is
estimated after every ``window`` batches. So the first ``window`` batches count by their outcome alone.

The gate weights step credit only. Values that a reward adds to the outcome stay there at any trust, so a gate needs a
reward that adds none. A correct search also visits dead branches, so for searches even exact values separate correct
from wrong rollouts less well step by step. The gate then opens less, or not at all (docs/credit.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, layers
from contrastive_reasoning.ranges import above, at_least, within
from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rewards.step_values import mean

AUROC, DISAGREEMENT = "steps/auroc_siblings", "critic/disagreement"
"""Names in ``Credit.metrics``: the first from every reward of steps, the second from an ensemble of critics. Both cover
the rollouts of all ranks, so that every rank has the same trust."""
OF_STEPS = "steps/"
"""Prefix of the metrics that a reward of steps always has."""


@runtime_checkable
class Weighted(Advantage, Protocol):
    """An advantage that adds step credit to the outcome's; a frozen dataclass, equal to the outcome's at weight 0."""

    @property
    def outcome(self) -> Advantage: ...

    @property
    def weight(self) -> float: ...


@dataclass(kw_only=True, eq=False)
class TrustGate:
    """``advantage`` with the weight w_n; its own weight is w_max. At w_n = 0 it is bit for bit its ``outcome`` alone.

    A plain object. The caller saves its state (count, window, trust) in the checkpoint.

    Raises ValueError for a number out of range, or an advantage that adds no step credit.
    """

    advantage: Any
    """A ``Weighted`` advantage: process, potential, survival or vineppo."""
    window: int
    """The number of rollout batches behind an estimate and between estimates."""
    floor: float
    """The AUROC among siblings up to which trust is 0."""
    span: float
    """How far above ``floor`` the AUROC must be for full trust."""
    total_steps: int
    """N."""

    reads_verdicts = True
    """The gate is useless if no part of the reward verifies."""
    refuses_added_values = "a trust gate scales the credit of steps alone"
    """Why a reward must not add values of steps to the outcome."""

    def __post_init__(self) -> None:
        at_least(1, window=self.window, total_steps=self.total_steps)
        within("[0, 1)", floor=self.floor)
        above(0, span=self.span)
        if not isinstance(self.advantage, Weighted):
            name = type(self.advantage).__name__
            raise ValueError(
                f"a trust gate weighs step credit against an outcome, {name} has no such weight: "
                "choose process, potential, survival or vineppo"
            )
        self.calls = 0
        """n, the number of batches that the policy learned from."""
        self.trust = 0.0
        self.aurocs: list[float] = []
        self.disagreements: list[float] = []
        self.weight = 0.0
        """w of the last batch."""

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        if credit.steps is None:
            raise ValueError(
                f"a trust gate needs a reward that values steps (oracle, critic); this one has: {credit.named}"
            )
        annealed = min(max((self.total_steps - 1 - self.calls) / (self.total_steps / 3), 0.0), 1.0)
        # before _observe, so that the weight of a batch does not depend on its own verdicts
        self.weight = self.advantage.weight * self.trust * annealed
        self._observe(credit)
        chosen = replace(self.advantage, weight=self.weight) if self.weight > 0 else self.advantage.outcome
        return chosen(credit, mask, group_size)

    @property
    def metrics(self) -> dict[str, float]:
        """The weight of the last batch, and the trust that applies to the next one."""
        return {"gate/weight": self.weight, "gate/trust": self.trust}

    def state_dict(self) -> dict[str, Any]:
        """Returns numbers and lists of numbers."""
        kept = {"calls": self.calls, "trust": self.trust, "weight": self.weight}
        return {**kept, "aurocs": list(self.aurocs), "disagreements": list(self.disagreements)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls, self.trust, self.weight = state["calls"], state["trust"], state["weight"]
        self.aurocs, self.disagreements = list(state["aurocs"]), list(state["disagreements"])

    def begin_anew(self) -> None:
        """Clears the current window, because another critic computes the values from now on.

        The trust stays unchanged until a window of the new critic is full.
        """
        self.aurocs, self.disagreements = [], []

    def _observe(self, credit: Credit) -> None:
        """Counts this batch. At the end of a window, estimates the trust and starts a new window."""
        metrics = credit.metrics
        self.calls += 1
        self.aurocs += [metrics[AUROC]] if AUROC in metrics else []  # absent if all succeed or none does
        self.disagreements += [metrics.get(DISAGREEMENT, 0.0)]
        if len(self.disagreements) == self.window:
            if not self.aurocs and not any(name.startswith(OF_STEPS) for name in metrics):
                raise ValueError(
                    f"a trust gate reads {AUROC}, and this reward ({credit.named}) has no metrics of its steps: "
                    "make its credit with rewards.step_values.add_step_credit, which adds them"
                )
            self.trust = self._estimate()
            self.aurocs, self.disagreements = [], []

    def _estimate(self) -> float:
        """Returns the trust; 0 if no batch of the window has an AUROC."""
        if not self.aurocs:
            return 0.0
        quality = (mean(self.aurocs) - self.floor) / self.span
        return min(max(quality, 0.0), 1.0) * (1 - mean(self.disagreements))


def refuse_stale_trust(advantage: Any, refresh_every: int) -> None:
    """Raises ValueError, with both numbers, if a gate's window does not end before the online critic's next copy.

    The gate evaluates each copy of an online critic by the copy's own batches.
    """
    for layer in layers(advantage):
        if isinstance(layer, TrustGate) and layer.window >= refresh_every:
            raise ValueError(
                f"online.refresh_every={refresh_every} changes the critic before advantage.window={layer.window} "
                "rollout batches have shown what it is worth: take a smaller window"
            )
