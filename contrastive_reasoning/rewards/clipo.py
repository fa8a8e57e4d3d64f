"""CLIPO's contrastive reward, Eq. (8)–(12) of arXiv:2603.10101: correct completions of a prompt attract each other.

        zᵢ = normalize(g(hᵢ)),   hᵢ the mean last hidden state of completion i
        Lᵢ = −log( exp(zᵢ·z_p/τ) / Σ_k exp(zᵢ·z_k/τ) )      i correct, p another correct one, k over the group
        r′ᵢ = rᵢ + max(−λ Lᵢ, floor)                        for correct i of groups with 1 < |P| < G; else rᵢ

The head g is trained on L alone. No gradient reaches the policy, because the hidden states come from the sampling pass.
The sum over k as printed includes i itself; the released code, and so every published figure, leaves it out.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn.functional import normalize

from contrastive_reasoning.distributed import gather_groups, own_groups
from contrastive_reasoning.geometry import effective_rank, uniformity
from contrastive_reasoning.losses.completions import LEVELS, Compared, draw_positive, epsilon_floor
from contrastive_reasoning.losses.similarity import Similarity
from contrastive_reasoning.nonfinite import SkippedSteps, finite_step
from contrastive_reasoning.policies.seeded import seeded
from contrastive_reasoning.ranges import above, at_least, one_of
from contrastive_reasoning.rewards.base import Credit, Reward, move_with_moments, refuse_learning
from contrastive_reasoning.rewards.correct_bonus import scaled_in_groups, spread_in_groups
from contrastive_reasoning.rewards.step_metrics import auroc
from contrastive_reasoning.rollout.batch import RolloutBatch


@dataclass(frozen=True, kw_only=True)
class _Head(ABC):
    dimension: int
    """d, the width of the contrastive space."""
    seed: int

    def __post_init__(self) -> None:
        if self.dimension < 1:
            raise ValueError(f"head.dimension must be at least 1, got {self.dimension}")

    def __call__(self, width: int) -> nn.Module:
        with seeded(self.seed):
            return self.build(width)

    @abstractmethod
    def build(self, width: int) -> nn.Module: ...


class LinearHead(_Head):
    """z = W h without a bias, Eq. (8) of arXiv:2603.10101."""

    def build(self, width: int) -> nn.Module:
        return nn.Linear(width, self.dimension, bias=False)


class MLPHead(_Head):
    """z = W₂ max(0, W₁ h) with W₁ square, without biases: the other head of the paper's released code."""

    def build(self, width: int) -> nn.Module:
        return nn.Sequential(
            nn.Linear(width, width, bias=False), nn.ReLU(), nn.Linear(width, self.dimension, bias=False)
        )


Formula = Callable[[Tensor, Tensor, Tensor, Tensor | None], Tensor]
"""(logits, positive, candidate, floor) → ℓ per anchor, like ``losses.info_nce``."""
POSITIVES = ("one", "all")
PLAN = "right_plan"
"""Field of a verdict, true if the steps of a correct answer are right too; the arithmetic stories have it."""


@dataclass(kw_only=True, eq=False)
class CLIPOReward:
    """``outcome`` plus the contrastive reward of its correct completions; it learns with every call.

    A plain object that owns g and its AdamW: no module registers them. Each call first computes the reward from the
    loss, then takes one step on the mean loss over all valid anchors of the batch. Without valid anchors g does not
    change. Each of several ranks gathers the states of all ranks, which are small, and takes the step that one process
    would take: heads stay equal, comparisons span the whole batch, and no gradient is exchanged.

    If the loss, its gradient or a reward of the batch is not finite on any rank, the head's step is skipped and counted
    in ``clipo/skipped_steps``. After ``max_skipped_steps`` skipped steps the next one ends the run.

    Raises ValueError for a setting outside its range, with the allowed choices, and for an ``outcome`` that learns.
    """

    outcome: Reward
    """The reward that is shaped; it must verify."""
    head: Callable[[int], nn.Module]
    """Builds g from the width of the first states."""
    similarity: Similarity
    level: str
    """Which completions are compared: group, cross or batch (see ``losses.completions``)."""
    formula: Formula
    positives: str
    """``one`` drawn per anchor (InfoNCE), or ``all``."""
    temperature: float
    weight: float
    """λ."""
    floor: float
    """The lower bound of the contrastive reward, at most 0."""
    self_in_denominator: bool
    """Whether the sum over k includes the anchor itself, as printed."""
    reference_epsilon: float | None
    """ε inside the logarithm, as in the released code; None for exact sums."""
    learning_rate: float
    weight_decay: float
    trainable: bool
    """False freezes the head at its initial weights (the paper's ablation), without a warm-up."""
    warmup_steps: int
    max_skipped_steps: int
    """How many of the head's steps may be skipped because a number is not finite."""
    seed: int
    spread: float | None = None
    """If given, −L is centred and scaled within each group to this standard deviation, in place of λ and floor
    (``correct_bonus``); not in the paper."""

    reads_states = True

    def __post_init__(self) -> None:
        one_of(LEVELS, level=self.level)
        one_of(POSITIVES, positives=self.positives)
        above(0, temperature=self.temperature, learning_rate=self.learning_rate)
        at_least(0, weight=self.weight, weight_decay=self.weight_decay, warmup_steps=self.warmup_steps)
        if not self.floor <= 0:
            raise ValueError(f"floor must be at most 0, got {self.floor}")
        if self.spread is not None:
            above(0, spread=self.spread)
        if self.reference_epsilon is not None:
            above(0, reference_epsilon=self.reference_epsilon)
        refuse_learning("CLIPOReward", self.outcome)
        if not self.trainable:
            self.warmup_steps = 0
        self.g: nn.Module | None = None
        """The head; None before the first states."""
        self.optimizer: torch.optim.Optimizer | None = None
        self.calls = 0
        """The number of rollout batches rewarded so far; the drawn positives are a function of (seed, calls)."""
        self.skipped = SkippedSteps(self.max_skipped_steps, of="CLIPO's head")

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        credit, size = self.outcome(rollouts), rollouts.group_size
        if credit.verdicts is None:
            raise ValueError(f"reward.outcome must verify completions; this one has {credit.named} only")
        # a completion on which the outcome's reward failed is neither correct nor wrong
        judged = [
            [verdict.correct, row in credit.failures, bool(verdict.fields.get(PLAN))]
            for row, verdict in enumerate(credit.verdicts)
        ]
        marks = gather_groups(torch.tensor(judged, device=rollouts.mask.device), size)
        correct, unjudged, planned = marks.unbind(dim=1)
        with torch.enable_grad():
            embeddings = self.project(gather_groups(states_of(rollouts), size))
            compared = LEVELS[self.level](embeddings, correct, size, self.similarity).without(unjudged)
            anchors = correct & compared.contrasted
            losses = self.losses(compared).where(anchors, 0.0)
        if self.spread is None:
            reward = contrastive_reward(losses.detach(), weight=self.weight, floor=self.floor).where(anchors, 0.0)
        else:
            reward = scaled_in_groups(-losses.detach(), anchors, size, self.spread)
        reward = reward.to(credit.outcome.dtype)
        metrics = contrast_metrics(embeddings.detach(), compared, anchors, losses.detach(), size)
        if bool(anchors.any()):
            metrics["clipo/bonus_spread"] = spread_in_groups(reward, anchors, size).mean().item()
            group = torch.arange(len(reward), device=reward.device)[anchors] // size
            ranked = auroc(reward[anchors].cpu(), planned[anchors].cpu(), group.cpu())
            metrics |= {} if ranked is None else {"clipo/right_plan_auroc": ranked}
        if bool(correct.any()):
            metrics["clipo/reward_of_correct"] = reward[correct].mean().item()
        loss = losses[anchors].mean()
        if self.trainable and bool(anchors.any()) and (reason := self._learn(loss, credit.outcome)):
            self.skipped.add(reason)
            metrics = {name: value for name, value in metrics.items() if math.isfinite(value)}
        metrics["clipo/skipped_steps"] = float(self.skipped.count)
        self.calls += 1
        return credit.plus("clipo", own_groups(reward, size), metrics=metrics)

    def embed(self, rollouts: RolloutBatch) -> Float[Tensor, "B D"]:
        """Returns z of every completion of this rank, as unit vectors. Raises RuntimeError without pooled states."""
        return self.project(states_of(rollouts))

    def project(self, states: Float[Tensor, "N H"]) -> Float[Tensor, "N D"]:
        """Returns normalize(g(h)) of pooled states."""
        g, optimizer = self._build(states.shape[1])
        move_with_moments(g, optimizer, states.device)
        return normalize(g(states), dim=1)

    def losses(self, compared: Compared) -> Float[Tensor, " B"]:
        """Returns ℓ of every completion as an anchor; only the losses of valid anchors are meaningful."""
        logits = compared.scores / self.temperature
        positive = compared.positive
        if self.positives == "one":
            # modulo, because torch raises for a seed of more than 64 bits
            generator = torch.Generator().manual_seed((self.seed * 1_000_003 + self.calls) % 2**64)
            positive = draw_positive(positive, generator=generator)
        candidate = compared.candidate if self.self_in_denominator else compared.candidate & ~compared.itself
        floor = None if self.reference_epsilon is None else epsilon_floor(logits, self.reference_epsilon)
        return self.formula(logits, positive, candidate, floor)

    def state_dict(self) -> dict[str, Any]:
        """Returns the head, the optimizer and the counts; empty before the first call."""
        if self.g is None or self.optimizer is None:
            return {}
        counts = {"calls": self.calls, "skipped": self.skipped.count}
        return {"head": self.g.state_dict(), "optimizer": self.optimizer.state_dict(), **counts}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not state:
            return
        g, optimizer = self._build(next(iter(state["head"].values())).shape[1])
        g.load_state_dict(state["head"])
        optimizer.load_state_dict(state["optimizer"])
        self.calls = state["calls"]
        self.skipped.count = state["skipped"]

    def _build(self, width: int) -> tuple[nn.Module, torch.optim.Optimizer]:
        """Returns g and its optimizer, built at the first call."""
        if self.g is None or self.optimizer is None:
            self.g = self.head(width).requires_grad_(self.trainable)
            self.optimizer = torch.optim.AdamW(
                self.g.parameters(), lr=self.learning_rate, weight_decay=self.weight_decay
            )
        return self.g, self.optimizer

    def _learn(self, loss: Float[Tensor, ""], outcome: Float[Tensor, " B"]) -> str | None:
        """Takes one step. Returns the reason if the step was skipped, else None."""
        assert self.optimizer is not None
        self.optimizer.zero_grad()
        loss.backward()
        return finite_step(self.optimizer, loss=loss, reward=outcome)


def states_of(rollouts: RolloutBatch) -> Float[Tensor, "B H"]:
    """Returns the mean last hidden state of every completion in fp32. Raises RuntimeError without pooled states."""
    if rollouts.pooled is None:
        raise RuntimeError("the rollouts hold no pooled hidden states, which reward=clipo reads: use rollout=engine")
    return rollouts.pooled.detach().float()


def contrastive_reward(losses: Float[Tensor, " B"], *, weight: float, floor: float) -> Float[Tensor, " B"]:
    """Returns max(−λ L, floor), Eq. (12)."""
    return (-weight * losses).clamp(min=floor)


SPREAD_ROWS = 256
"""The least number of evenly spaced completions whose spread is measured; a smaller batch is measured whole. The actual
number stays below twice this one, because the cost grows with its square."""


@torch.no_grad()
def contrast_metrics(
    embeddings: Float[Tensor, "B D"],
    compared: Compared,
    anchors: Bool[Tensor, " B"],
    losses: Float[Tensor, " B"],
    group_size: int,
) -> dict[str, float]:
    """Returns the metrics of one rollout batch under ``clipo/``, without those of pairs if no anchor is valid.

    If the embeddings are not finite, only ``clipo/valid_groups`` is returned.

    The mutual-information bound is log G − L as in the paper (its Eq. 4), which holds for InfoNCE with the anchor in
    its own sum. If the anchor is left out, as by default, the actual bound is log(G − 1) − L. For other losses the
    number serves only for comparison. ``embeddings`` are unit vectors, prompt-major; ``losses`` are 0 for anchors that
    are not valid.
    """
    metrics = {"clipo/valid_groups": anchors.view(-1, group_size).any(dim=1).double().mean().item()}
    if not bool(embeddings.isfinite().all()):
        return metrics  # torch raises for the singular values of such embeddings
    sample = embeddings[:: max(1, len(embeddings) // SPREAD_ROWS)]
    if len(sample) > 1:
        metrics["clipo/effective_rank"] = effective_rank(sample).item()
        metrics["clipo/uniformity"] = uniformity(sample).item()
    if not bool(anchors.any()):
        return metrics
    loss = losses[anchors].mean().item()
    positive = compared.positive & anchors[:, None]
    negative = compared.candidate & ~compared.positive & ~compared.itself & anchors[:, None]
    if compared.scores.shape[1] == group_size:
        groups = embeddings.unflatten(0, (-1, group_size))
        cosines = (groups @ groups.mT).flatten(0, 1)
    else:
        cosines = embeddings @ embeddings.T
    positive_cosine = cosines[positive].mean().item()
    return metrics | {
        "clipo/loss": loss,
        "clipo/mutual_information_bound": math.log(compared.scores.shape[1]) - loss,
        "clipo/positive_cosine": positive_cosine,
        "clipo/negative_cosine": cosines[negative].mean().item(),
        "clipo/alignment": 2 - 2 * positive_cosine,  # for unit vectors the mean squared distance of positives
    }
