"""Potential differences as step credit: the change in the value of the completion so far that each step causes.

        δ_k = V_{k+1} − V_k        A_k = Σ_{j≥k} λ^{j−k} δ_j        A = (1 − weight) · outcome + weight · scale · A_k

    completion   21+16=37 ; 37+17=54 ; 54+26=80 <end>
    segment      └─── 0 ──┘ └── 1 ───┘ └───── 2 ────┘      a separator belongs to the step that it ends
    V         V₀=Φ(s₀)   V₁=Φ(s₁)   V₂=Φ(s₂)        V₃=R

V is Φ of the last reached state, and R (1 if the verifier accepts, else 0) once the completion has ended. A step counts
as reached once it is settled: without the separator the next token could turn 37 into 375, and two possible next tokens
of one prefix would have different baselines.

This is potential shaping (Ng, Harada and Russell 1999) with γ = 1, kept separate for each step: summed over a rollout
it telescopes to R − Φ(s₀), which does not depend on single steps. λ-returns are those of generalised advantage
estimation, arXiv:1506.02438. With λ = 1, A_k = R − V_k: the prefix alone determines the baseline, so the expected
gradient is that of R for any Φ. With λ < 1 this holds only if Φ is the policy's own probability of success.

Five rules. All depend on the prefix alone, because a baseline must not depend on later tokens:

- A finished state (one number left) has no V of its own; its segment extends to the next step or to the end. After the
  last move V is therefore the verdict, and the tokens that write down or spoil the result are credited by it.
- A state that the completion was in before leaves V unchanged: loops earn nothing.
- A step that loses, such as the first illegal step of a list of moves, sets V to 0 for good: its tokens get −V, all
  that could be lost, and later moves get no credit.
- Any other illegal or unread step, which a search may contain, ends no segment; its tokens belong to the one around it.
- A step that only the completion's end settles ends with the completion: V is R.

(There are two exceptions. Outside a list of moves later text can revoke steps: moves before the first Solution block or
Try line, or in a block before the last one, are no longer steps once that text is written. And ``MonteCarloReward``
uses the verdict as the value of a step that only blanks follow; the prefix does not determine whether more follows.)

A search that backtracks is read in the order written: V is the value of the last written node, wherever it is in the
tree. So leaving a dead branch gains what entering it lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.advantages.base import Advantage, refuse_memory, with_illegal
from contrastive_reasoning.ranges import above, within
from contrastive_reasoning.rewards.base import Credit, StepCredit
from contrastive_reasoning.rewards.step_values import FINISHED


class Segment(NamedTuple):
    """The tokens ``first`` … ``end`` − 1 and δ, the gain of V on them."""

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
    """λ: 1 credits a step by the verdict, 0 by the change of Φ alone."""
    scale: float
    """Factor of the λ-returns, which lie within [−1, 1] if Φ is a probability; the outcome's range may be wider."""

    def __post_init__(self) -> None:
        refuse_memory(type(self).__name__, self.outcome)
        within("[0, 1]", weight=self.weight, decay=self.decay)
        above(0, scale=self.scale)

    @property
    def refuses_added_values(self) -> str | None:
        """Why a reward must not add values of steps to the outcome; None if it may."""
        return "a potential of weight 1 ignores the outcome" if self.weight == 1 else None

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
    """Returns the segments of every rollout of ``lengths`` tokens; none for one on which the reward failed.

    Raises ValueError if the credit has no step values, no values of starts or no verdicts.
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
    """Cuts a rollout of ``length`` tokens where steps are settled; V goes from ``start`` over theirs to ``end``."""
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
    """Returns Σ_{j≥k} λ^{j−k} δ_j for every k."""
    returns: list[float] = []
    following = 0.0
    for gain in reversed(gains):
        following = gain + decay * following
        returns.append(following)
    return returns[::-1]
