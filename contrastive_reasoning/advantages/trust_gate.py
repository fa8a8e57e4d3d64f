"""A trust gate on step credit: it counts as far as it was right about fresh verified rollouts.

        w_n = w_max · trust · anneal_n
        trust    = clip((AUROC − floor) / span, 0, 1) · (1 − disagreement)     means over the last ``window`` batches
        anneal_n = clip((N − 1 − n) / (N / 3), 0, 1)                           1, then linearly to 0 in the last third

The AUROC is that within problem and depth (``steps/auroc_siblings``): those steps a per-step advantage compares. Values
that only tell easy problems from hard ones have a high one over all, and nothing to teach.

n counts the rollout batches that taught, from 0 to N − 1; those of a warm-up do not. Trust is estimated anew after
every ``window`` batches, so the first ``window`` batches teach by their outcome alone, and no batch is weighted by what
its own verdicts say.

What it weighs is the credit of steps. Values that a reward adds to the outcome stay there whatever the trust, so a gate
needs a reward that adds none. And a correct search goes through dead branches: there even exact values of states tell
rollouts apart less well step by step, and the gate opens less far, or not at all (docs/credit.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, layers
from contrastive_reasoning.rewards.base import Credit

AUROC, DISAGREEMENT = "steps/auroc_siblings", "critic/disagreement"
"""Of ``Credit.metrics``: that of every reward of steps, and that of an ensemble of critics. Both are of all ranks'
rollouts, so that every rank has the same trust."""
OF_STEPS = "steps/"
"""What begins the names of metrics that a reward of steps always has."""


@runtime_checkable
class Weighted(Advantage, Protocol):
    """An advantage that mixes step credit into that of the outcome; a frozen dataclass, at weight 0 the outcome's."""

    @property
    def outcome(self) -> Advantage: ...

    @property
    def weight(self) -> float: ...


class TrustGate:
    """``advantage`` with the weight w_n, its own weight being w_max. At w_n = 0 bit for bit its ``outcome`` alone.

    A plain object whose state — count, window, trust — is in the checkpoint of who calls it.

    Args:
        advantage: process, potential, survival or vineppo.
        window: rollout batches that an estimate is made from, and between estimates.
        floor: the AUROC among siblings up to which nothing is trusted.
        span: by how much more everything is.
        total_steps: N.

    Raises ValueError for a number out of range, or an advantage that mixes in no step credit.
    """

    reads_verdicts = True
    """Of no use where no part of the reward verifies."""

    def __init__(self, *, advantage: Advantage, window: int, floor: float, span: float, total_steps: int) -> None:
        for name, count in (("window", window), ("total_steps", total_steps)):
            if count < 1:
                raise ValueError(f"{name} must be at least 1, got {count}")
        if not 0 <= floor < 1:
            raise ValueError(f"floor must lie in [0, 1), got {floor}")
        if not span > 0:
            raise ValueError(f"span must be above 0, got {span}")
        if not isinstance(advantage, Weighted):
            raise ValueError(
                f"a trust gate weighs step credit against an outcome, {type(advantage).__name__} has no such weight: "
                "choose process, potential, survival or vineppo"
            )
        self.advantage = advantage
        self.window = window
        self.floor = floor
        self.span = span
        self.total_steps = total_steps
        self.calls = 0
        """n: batches that have taught."""
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
        self.weight = self.advantage.weight * self.trust * annealed
        self._observe(credit)
        gated: Any = self.advantage
        chosen = replace(gated, weight=self.weight) if self.weight > 0 else gated.outcome
        return chosen(credit, mask, group_size)

    @property
    def metrics(self) -> dict[str, float]:
        """Of the last batch: its weight, and the trust that the next one will be given."""
        return {"gate/weight": self.weight, "gate/trust": self.trust}

    def state_dict(self) -> dict[str, Any]:
        """Numbers and lists of them."""
        kept = {"calls": self.calls, "trust": self.trust, "weight": self.weight}
        return {**kept, "aurocs": list(self.aurocs), "disagreements": list(self.disagreements)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calls, self.trust, self.weight = state["calls"], state["trust"], state["weight"]
        self.aurocs, self.disagreements = list(state["aurocs"]), list(state["disagreements"])

    def begin_anew(self) -> None:
        """Another critic gives the values from here on: batches of the former one count in no estimate any more.

        The trust stays as it is until a window of the new one is full.
        """
        self.aurocs, self.disagreements = [], []

    def _observe(self, credit: Credit) -> None:
        """Count this batch; at the end of a window estimate the trust and begin another."""
        metrics = credit.metrics
        self.calls += 1
        self.aurocs += [metrics[AUROC]] if AUROC in metrics else []  # absent where all succeed, or none
        self.disagreements += [metrics.get(DISAGREEMENT, 0.0)]
        if len(self.disagreements) == self.window:
            if not self.aurocs and not any(name.startswith(OF_STEPS) for name in metrics):
                raise ValueError(
                    f"a trust gate reads {AUROC}, and this reward ({credit.named}) has no metrics of its steps: "
                    "make its credit with rewards.shaping.shaped, which adds them"
                )
            self.trust = self._estimate()
            self.aurocs, self.disagreements = [], []

    def _estimate(self) -> float:
        """0 where no batch of the window could tell."""
        if not self.aurocs:
            return 0.0
        quality = (_mean(self.aurocs) - self.floor) / self.span
        return min(max(quality, 0.0), 1.0) * (1 - _mean(self.disagreements))


def refuse_stale_trust(advantage: Any, refresh_every: int) -> None:
    """With an online critic the gate judges each copy by its own batches, so the window must end before the next copy.

    Raises ValueError: naming both numbers.
    """
    for layer in layers(advantage):
        if isinstance(layer, TrustGate) and layer.window >= refresh_every:
            raise ValueError(
                f"online.refresh_every={refresh_every} changes the critic before advantage.window={layer.window} "
                "rollout batches have shown what it is worth: take a smaller window"
            )


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)
