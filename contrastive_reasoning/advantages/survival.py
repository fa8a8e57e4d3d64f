"""Step credit by survival: what a step kept of the value that was there, against what the group keeps at that depth.

        c_d = Σ Φ(s′) / Σ Φ(s)                             over the steps s → s′ of the group at depth d
        δ   = Φ(s′) − c_d · Φ(s)                           sums to 0, and is 0 where nothing was left to lose
        σ_d² = max(c_d (1 − c_d), Σ δ² / Σ Φ(s))           the same where Φ is 0 or 1, as the exact oracle's is
        A_{i,t} = outcome_{i,t} + weight · δ / (σ_d + ε)   t in the step

Φ is the value under perfect play, which the policy does not have: c_d · Φ(s) is what this policy keeps of it on the
average, an estimate of its own value of s. ``Process`` compares Φ(s′) alone, and so blames each step of a lost game for
the step that lost it; ``Potential`` compares with Φ(s), of which a policy that often loses falls short nearly always.

    group of three, one depth      Φ(s)  Φ(s′)      c = 1/2    δ
    keeps the target in reach       1     1                   +1/2
    loses it                        1     0                   −1/2
    had lost it before              0     0                    0     no decision, no blame

With the exact oracle these are the decisions that ``PerfectMoveReward`` judges. A critic's noise stays small where it
sees no decision: where nothing was left, or where the steps of the group all keep it or all lose it, for σ_d is what a
decision of such odds would spread, and ε what still counts as none where all is kept.

A step that the rules forbade kept nothing of what there was and leaves the state as it stood: were it not blamed,
breaking a rule would be better than a legal move that is.

The last move of a finished game is credited by its verdict, which takes no critic: ``ConstantValueReward`` shows what
that alone does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, by_group, on_step_tokens, refuse_memory, with_illegal
from contrastive_reasoning.advantages.process import peers
from contrastive_reasoning.rewards.base import Credit, StepCredit
from contrastive_reasoning.rewards.shaping import FINISHED


@dataclass(frozen=True, kw_only=True)
class Survival:
    outcome: Advantage
    """The advantage of the whole rollout."""
    weight: float
    """0: the outcome alone, bit for bit."""
    epsilon: float
    """Added to σ_d: differences of values far below it are no decisions."""

    def __post_init__(self) -> None:
        refuse_memory(type(self).__name__, self.outcome)
        for name in ("weight", "epsilon"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must not be negative, got {getattr(self, name)}")

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        outcome = self.outcome(credit, mask, group_size)
        if credit.steps is None or credit.starts is None:
            raise ValueError(
                f"survival needs a reward that values steps and the state before them (oracle, or critic with a "
                f"critic of states); this one only has: {credit.named}"
            )
        by_group(credit.outcome, group_size)  # refuses what is not whole groups
        relative = outcome.new_tensor(survival(changes_of(credit), group_size, epsilon=self.epsilon))
        return outcome + self.weight * on_step_tokens(with_illegal(credit), relative, mask)


Change = tuple[int, float, float]
"""Depth, Φ(s), Φ(s′) of one step."""


def changes_of(credit: Credit) -> list[list[Change | None]]:
    """What the steps of every rollout did to the value; None for a step into a state that was there before, or from one
    that is not among the steps.

    s is the state that the step was taken from: the latest written with one number more. The last finished state of a
    rollout is worth its verdict, where there is one.
    """
    steps, starts = with_illegal(credit), credit.starts or []
    verdicts = credit.verdicts or [None] * len(steps)
    return [
        _changes(row, start, None if verdict is None else float(verdict.correct))
        for row, start, verdict in zip(steps, starts, verdicts, strict=True)
    ]


def _changes(steps: Sequence[StepCredit], start: float, verdict: float | None) -> list[Change | None]:
    latest = {step.depth + 1: start for step in steps[:1]}
    last = next((step for step in reversed(steps) if step.legal), None)
    found: list[Change | None] = []
    for step in steps:
        ends = step is last and step.depth == FINISHED
        value = verdict if ends and verdict is not None else step.value  # an illegal step's is 0
        before = latest.get(step.depth + 1)
        found.append(None if step.again or before is None else (step.depth, before, value))
        if step.legal:
            latest[step.depth] = value
    return found


def survival(changes: Sequence[Sequence[Change | None]], group_size: int, *, epsilon: float) -> list[float]:
    """δ / (σ_d + ε) of all steps, in order of rollout and writing; 0 for those that are None."""
    flat = [change for changed in changes for change in changed]
    relative = [0.0] * len(flat)
    depths = [[None if change is None else change[0] for change in changed] for changed in changes]
    for indices in peers(depths, group_size):
        pairs = [(change[1], change[2]) for index in indices if (change := flat[index]) is not None]
        for index, value in zip(indices, centred_by_survival(pairs, epsilon=epsilon), strict=True):
            relative[index] = value
    return relative


def centred_by_survival(pairs: Sequence[tuple[float, float]], *, epsilon: float) -> list[float]:
    """δ / (σ + ε) of (Φ(s), Φ(s′)) pairs; exactly 0 where all are equal, or nothing was there, kept or lost."""
    before, after = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    if before <= 0 or len(set(pairs)) == 1:
        return [0.0] * len(pairs)
    share = after / before
    gains = [kept - share * had for had, kept in pairs]
    if not any(gains):  # what was there is kept, or lost, by every step
        return [0.0] * len(pairs)
    spread = sqrt(max(share * (1 - share), sum(gain * gain for gain in gains) / before))
    return [gain / (spread + epsilon) for gain in gains]
