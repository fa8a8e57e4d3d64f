"""Step credit by survival: the value that a step keeps, compared with the share that the group keeps at that depth.

        c_d = Σ Φ(s′) / Σ Φ(s)                             over the steps s → s′ of the group at depth d
        δ   = Φ(s′) − c_d · Φ(s)                           sums to 0, and is 0 where nothing was left to lose
        σ_d² = max(c_d (1 − c_d), Σ δ² / Σ Φ(s))           both are equal if Φ is 0 or 1, as for the exact oracle
        A_{i,t} = outcome_{i,t} + weight · δ / (σ_d + ε)   t in the step

Φ is the value under perfect play, which the policy does not attain. c_d · Φ(s) is the part that this policy keeps on
average, an estimate of its own value of s. ``Process`` compares Φ(s′) alone, so it blames every step of a lost game for
the step that lost it. ``Potential`` compares with Φ(s), and a policy that often loses nearly always falls short of it.

    group of three, one depth      Φ(s)  Φ(s′)      c = 1/2    δ
    keeps the target in reach       1     1                   +1/2
    loses it                        1     0                   −1/2
    had lost it before              0     0                    0     no decision, no blame

With the exact oracle the credited steps are the decisions that ``PerfectMoveReward`` judges. A critic's noise has
little effect where there is no decision: where no value was left, or where all steps of the group keep it or all lose
it. σ_d is the spread of a decision with such odds, and ε sets which differences count as none if all steps keep it.

An illegal step keeps nothing of the value and leaves the state unchanged. If it were not blamed, breaking a rule would
be better than a legal move that is blamed.

The last move of a finished game is credited by its verdict, without a critic; ``ConstantValueReward`` shows the effect
of that alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, by_group, on_step_tokens, refuse_memory, with_illegal
from contrastive_reasoning.advantages.process import peers
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rewards.base import Credit, StepCredit
from contrastive_reasoning.rewards.step_values import FINISHED


@dataclass(frozen=True, kw_only=True)
class Survival:
    outcome: Advantage
    """The advantage of the whole rollout."""
    weight: float
    """0: the outcome alone, bit for bit."""
    epsilon: float
    """Added to σ_d: differences of values far below it do not count as decisions."""

    def __post_init__(self) -> None:
        refuse_memory(type(self).__name__, self.outcome)
        at_least(0, weight=self.weight, epsilon=self.epsilon)

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        outcome = self.outcome(credit, mask, group_size)
        if credit.steps is None or credit.starts is None:
            raise ValueError(
                f"survival needs a reward that values steps and the state before them (oracle, or critic with a "
                f"critic of states); this one only has: {credit.named}"
            )
        by_group(credit.outcome, group_size)  # raises for a batch that is not whole groups
        relative = outcome.new_tensor(survival(changes_of(credit), group_size, epsilon=self.epsilon))
        return outcome + self.weight * on_step_tokens(with_illegal(credit), relative, mask)


Change = tuple[int, float, float]
"""Depth, Φ(s), Φ(s′) of one step."""


def changes_of(credit: Credit) -> list[list[Change | None]]:
    """Returns the change of value at each step of every rollout, or None.

    A step into an earlier state of the rollout has None, and so has a step whose parent is not among the steps. The
    parent s is the last written state with one number more. If the last legal step of a rollout reaches a finished
    state, its value is the verdict, if there is one.
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
        ends = step is last and step.depth == FINISHED  # not ==, which an equal earlier step would satisfy
        value = verdict if ends and verdict is not None else step.value  # 0 for an illegal step
        before = latest.get(step.depth + 1)
        found.append(None if step.again or before is None else (step.depth, before, value))
        if step.legal:
            latest[step.depth] = value
    return found


def survival(changes: Sequence[Sequence[Change | None]], group_size: int, *, epsilon: float) -> list[float]:
    """Returns δ / (σ_d + ε) of all steps, in order of rollout and writing; 0 for those that are None."""
    flat = [change for changed in changes for change in changed]
    relative = [0.0] * len(flat)
    depths = [[None if change is None else change[0] for change in changed] for changed in changes]
    for indices in peers(depths, group_size):
        pairs = [(change[1], change[2]) for index in indices if (change := flat[index]) is not None]
        for index, value in zip(indices, centre_by_survival(pairs, epsilon=epsilon), strict=True):
            relative[index] = value
    return relative


def centre_by_survival(pairs: Sequence[tuple[float, float]], *, epsilon: float) -> list[float]:
    """Returns δ / (σ + ε) of (Φ(s), Φ(s′)) pairs; exactly 0 if all pairs are equal, all Φ(s) are 0 or all δ are 0."""
    before, after = sum(pair[0] for pair in pairs), sum(pair[1] for pair in pairs)
    if before <= 0 or len(set(pairs)) == 1:
        return [0.0] * len(pairs)
    share = after / before
    gains = [kept - share * had for had, kept in pairs]
    if not any(gains):  # every step keeps all of the value, or every step loses all of it
        return [0.0] * len(pairs)
    spread = sqrt(max(share * (1 - share), sum(gain * gain for gain in gains) / before))
    return [gain / (spread + epsilon) for gain in gains]
