"""Potential differences as step credit: what each step changed of the value of the completion so far.

        δ_k = V_{k+1} − V_k        A_k = Σ_{j≥k} λ^{j−k} δ_j        A = (1 − weight) · outcome + weight · scale · A_k

    completion   21+16=37 ; 37+17=54 ; 54+26=80 <end>
    segment      └─── 0 ──┘ └── 1 ───┘ └───── 2 ────┘      a separator belongs to the step that it ends
    V         V₀=Φ(s₀)   V₁=Φ(s₁)   V₂=Φ(s₂)        V₃=R

V is Φ of the state last reached, R (1 where the verifier accepts, else 0) once the completion has ended. A step has
been reached when it is settled: without the separator the next token could make 375 of 37, and two tokens that may
follow one prefix would have different baselines.

This is potential shaping (Ng, Harada and Russell 1999) with γ = 1, kept apart step by step: summed over a rollout it
telescopes to R − Φ(s₀), which does not depend on single steps. λ-returns as in generalised advantage estimation,
arXiv:1506.02438. With λ = 1, A_k = R − V_k: a baseline that the prefix alone decides, so the expected gradient is that
of R whatever Φ is. With λ < 1 it is so only where Φ is the policy's own chance of success.

Five rules, all decided by the prefix, or the baseline would depend on what comes after it:

- A finished state (one number left) has no V of its own; its segment runs on to the next step or to the end. After the
  last move that makes V the verdict, and spoiling or writing down a result is still paid by what comes of it.
- A state that the completion was in before leaves V as it was: going round earns nothing.
- A step that loses, as the first illegal one of a list of moves does, makes V = 0 for good: its tokens get −V, what
  there was to lose, and no move after it has credit.
- Another illegal or unread step, as a search may have, ends no segment; its tokens are part of the one they stand in.
- A step that only the completion's end settles ends where the completion does: V is R.

(Outside a list of moves a text may take back what it was: moves before the first Solution block or Try line, or in a
block before the last one, are no steps any more once that is written. And ``MonteCarloReward`` gives a step that only
blanks follow the verdict for a value: whether more will follow is no fact of the prefix.)

A search that goes back is read in the order written: V is the value of the node last written, wherever it hangs. So
leaving a dead branch earns what entering it cost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, refuse_memory, with_illegal
from contrastive_reasoning.rewards.base import Credit, StepCredit
from contrastive_reasoning.rewards.shaping import FINISHED


class Segment(NamedTuple):
    """The tokens ``first`` … ``end`` − 1 and what V gained on them, δ."""

    first: int
    end: int
    gain: float


@dataclass(frozen=True, kw_only=True)
class Potential:
    outcome: Advantage
    """The advantage of the whole rollout."""
    weight: float
    """0: the outcome alone, bit for bit; 1: the λ-returns alone."""
    decay: float
    """λ: 1 waits for the verdict, 0 believes Φ."""
    scale: float
    """Of the λ-returns, which lie within [−1, 1] where Φ is a probability; the outcome's advantages may be wider."""

    def __post_init__(self) -> None:
        refuse_memory(type(self).__name__, self.outcome)
        for name in ("weight", "decay"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must lie in [0, 1], got {getattr(self, name)}")
        if not self.scale > 0:
            raise ValueError(f"scale must be positive, got {self.scale}")

    def __call__(self, credit: Credit, mask: Bool[Tensor, "B T"], group_size: int) -> Float[Tensor, "B T"]:
        outcome = self.outcome(credit, mask, group_size)
        rows = segments_of(credit, mask.sum(dim=1).tolist())
        returns = torch.zeros(mask.shape, dtype=outcome.dtype)
        for row, segments in enumerate(rows):
            values = lambda_returns([segment.gain for segment in segments], decay=self.decay)
            for segment, value in zip(segments, values, strict=True):
                returns[row, segment.first : segment.end] = value
        return (1 - self.weight) * outcome + self.weight * self.scale * returns.to(outcome.device) * mask


def segments_of(credit: Credit, lengths: Sequence[int]) -> list[list[Segment]]:
    """The segments of every rollout, of as many tokens as ``lengths``; none of one that the reward failed on.

    Raises ValueError where the credit has no step values, no values of starts or no verdicts.
    """
    if credit.steps is None or credit.starts is None:
        raise ValueError(
            f"a potential needs a reward that values steps and the state before them (oracle, or critic with a critic "
            f"of states); this one only has: {credit.named}"
        )
    if credit.verdicts is None:
        raise ValueError("a potential ends in the verified outcome, and this reward holds no verifier")
    correct = [float(verdict.correct) for verdict in credit.verdicts]
    rows = enumerate(zip(with_illegal(credit), credit.starts, correct, lengths, strict=True))
    return [
        [] if row in credit.failures else segments(steps, start=start, end=end, length=length)
        for row, (steps, start, end, length) in rows
    ]


def segments(steps: Sequence[StepCredit], *, start: float, end: float, length: int) -> list[Segment]:
    """One rollout of ``length`` tokens, cut where steps are settled: V goes from ``start`` over theirs to ``end``."""
    found: list[Segment] = []
    first, value = 0, start
    for step in steps:
        border = (step.last_token if step.settled_token is None else step.settled_token) + 1
        if border >= length or not (step.lost or (step.legal and step.depth != FINISHED)):
            continue
        after = 0.0 if step.lost else value if step.again else step.value
        found.append(Segment(first, border, after - value))
        first, value = border, after
        if step.lost:
            break
    return [*found, Segment(first, length, end - value)]


def lambda_returns(gains: Sequence[float], *, decay: float) -> list[float]:
    """Σ_{j≥k} λ^{j−k} δ_j for every k."""
    returns: list[float] = []
    following = 0.0
    for gain in reversed(gains):
        following = gain + decay * following
        returns.append(following)
    return returns[::-1]
