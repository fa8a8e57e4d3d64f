"""A critic's or an oracle's logits as P(success | state) of the current policy, learned from its own verified rollouts.

    values = curve_depth(f/τ)        curve: refitted every few batches to the last few batches' (logit, depth, success)

A critic knows what some player can reach, the oracle what a perfect one can. What this policy can finish is another
thing, and changes while it learns. A batch is valued, and the curves are judged by it, before they learn from it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrastive_reasoning.critics.calibration import (
    Calibration,
    Examples,
    brier_score,
    expected_calibration_error,
    join_examples,
)
from contrastive_reasoning.distributed import gather
from contrastive_reasoning.rewards.base import Credit, Reward, refuse_adding
from contrastive_reasoning.rewards.critic import on_steps
from contrastive_reasoning.rewards.shaping import (
    FINISHED,
    Steps,
    StepValue,
    depth_of,
    identity_of,
    mean,
    read_steps,
    start_of,
    start_steps,
)
from contrastive_reasoning.rollout.batch import RolloutBatch, verdicts_of
from contrastive_reasoning.tasks.base import Step, Task

BINS = 15
"""Of the calibration error."""


@runtime_checkable
class LogitSource(Reward, Protocol):
    """A reward that can be calibrated: logits of states apart from the credit that is made of them."""

    task: Task

    def step_logits(self, rollouts: RolloutBatch, steps: Sequence[Sequence[Step]]) -> list[Float[Tensor, "M _"]]:
        """Of every step of every rollout, by each of M members."""
        ...

    def start_logits(self, rollouts: RolloutBatch) -> Float[Tensor, "M P"] | None:
        """Of each problem before any step; None where that is not known."""
        ...

    def credit(
        self,
        rollouts: RolloutBatch,
        steps: Steps,
        logits: Sequence[Float[Tensor, "M _"]],
        values: Sequence[Sequence[StepValue]],
        starts: Sequence[float] | None,
        *,
        weight: float,
    ) -> Credit:
        """The outcome's credit with these values of the legal steps, whose logits these are, and of starts.

        ``weight`` times a completion's mean value is added to its outcome.
        """
        ...


class CalibratedReward:
    """``source`` with calibrated probabilities for values of steps and starts; it learns with every call.

    ``weight`` times the mean value of a completion's legal steps is added to its outcome.

    Logged are ``critic/ece`` and ``critic/brier``, over the states of the batch that leave a move (a finished state's
    success is known), each weighted by the rollouts through it. Of an ensemble the members' mean logit is calibrated.

    Args:
        source: the reward of the critic or the oracle; its outcome must verify. Its own weight must be 0: what it
            adds to the outcome is not calibrated.
        weight: of the mean value in the outcome; 0 leaves the values to a per-step advantage.
        calibration: the curves.
        batches: the last rollout batches that the curves are fitted to.
        refit_every: rollout batches between fits; the first batch is fitted to at once.
        warmup_steps: rollout batches at the beginning from which only the curves learn.

    Raises ValueError for a number below 1 (``warmup_steps``: below 0), and for a source with a weight of its own.
    """

    values_steps = True
    reads_verdicts = True
    """Of no use where no part of the reward verifies."""
    reads_all_groups = True
    """Chances fitted to groups that were chosen for their verdicts would be too near one half."""

    def __init__(
        self,
        *,
        source: LogitSource,
        weight: float,
        calibration: Calibration,
        batches: int,
        refit_every: int,
        warmup_steps: int,
    ) -> None:
        for name, value, least in (
            ("batches", batches, 1),
            ("refit_every", refit_every, 1),
            ("warmup_steps", warmup_steps, 0),
        ):
            if value < least:
                raise ValueError(f"{name} must be at least {least}, got {value}")
        refuse_adding("CalibratedReward", source)
        self.source = source
        self.weight = weight
        self.calibration = calibration
        self.refit_every = refit_every
        self.warmup_steps = warmup_steps
        self.seen: deque[Examples] = deque(maxlen=batches)
        """The last batches, oldest first."""
        self.calls = 0
        """Rollout batches rewarded."""
        self.foreseen: Examples | None = None
        """The last batch, with the logits of a critic that is about to replace the current one."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        steps = read_steps(self.source.task, rollouts)
        members = self.source.step_logits(rollouts, steps.legal)
        logits, starts = _means(members), self._start_logits(rollouts)
        values = on_steps(steps.legal, self._calibrate(steps.legal, start_steps(rollouts), logits))
        chances = self._calibrate_starts(rollouts, starts)
        credit = self.source.credit(rollouts, steps, members, values, chances, weight=self.weight)
        if credit.verdicts is None:
            raise ValueError(f"reward.source.outcome must verify completions; this one has {credit.named} only")
        correct = torch.tensor([verdict.correct for verdict in credit.verdicts])
        own = visited_states(rollouts, steps.legal, logits, starts, correct, credit.failures)
        fresh = join_examples(gather(own))  # of all ranks, whose curves stay equal
        credit = replace(credit, metrics={**credit.metrics, **self._reliability(fresh)})
        self._learn(fresh)
        return credit

    def foresee(self, rollouts: RolloutBatch) -> None:
        """Keep the logits of a verified batch by the critic that will replace the current one.

        Call it while that critic is in the source; of several ranks all must call it.
        """
        steps = read_steps(self.source.task, rollouts).legal
        logits, starts = _means(self.source.step_logits(rollouts, steps)), self._start_logits(rollouts)
        verdicts = verdicts_of(self.source.task, rollouts)
        correct = torch.tensor([verdict.correct for verdict in verdicts])
        unjudged = {row for row, verdict in enumerate(verdicts) if not verdict.judged}
        self.foreseen = join_examples(gather(visited_states(rollouts, steps, logits, starts, correct, unjudged)))

    def begin_anew(self) -> None:
        """Another critic gives the logits from here on: fit the curves to what was foreseen of it alone.

        Without anything foreseen the curves stay, and later batches are added to those of the former critic.
        """
        if self.foreseen is not None:
            self.seen.clear()
            self.seen.append(self.foreseen)
            self.calibration.fit(self.foreseen)
            self.foreseen = None

    def state_dict(self) -> dict[str, Any]:
        """Curves, examples and count: tensors and numbers."""
        seen = [dict(vars(examples)) for examples in self.seen]
        foreseen = None if self.foreseen is None else dict(vars(self.foreseen))
        calibration = self.calibration.state_dict()
        return {"calibration": calibration, "seen": seen, "calls": self.calls, "foreseen": foreseen}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self.calibration.load_state_dict(state["calibration"])
        self.seen.clear()
        self.seen.extend(Examples(**columns) for columns in state["seen"])
        self.calls = state["calls"]
        self.foreseen = None if state["foreseen"] is None else Examples(**state["foreseen"])

    def _start_logits(self, rollouts: RolloutBatch) -> list[float] | None:
        """The mean logit of each problem before any step."""
        members = self.source.start_logits(rollouts)
        return None if members is None else members.mean(dim=0).tolist()

    def _calibrate(
        self, steps: Sequence[Sequence[Step]], before: Sequence[Step | None], logits: Sequence[Sequence[float]]
    ) -> list[list[float]]:
        """Probabilities of the steps of every rollout, given the state before its first step or None."""
        rows = zip(steps, before, strict=True)
        depths = [depth_of(step, index, start) for row, start in rows for index, step in enumerate(row)]
        flat = torch.tensor([logit for row in logits for logit in row], dtype=torch.float64)
        values = self.calibration(flat, torch.tensor(depths, dtype=torch.long))
        return [part.tolist() for part in values.split([len(row) for row in logits])]

    def _calibrate_starts(self, rollouts: RolloutBatch, logits: Sequence[float] | None) -> list[float] | None:
        """Probabilities of each problem before any step."""
        if logits is None:
            return None
        starts = [start for problem in rollouts.problems if (start := start_of(problem)) is not None]
        values = self._calibrate([[start] for start in starts], starts, [[logit] for logit in logits])
        return [value for (value,) in values]

    def _reliability(self, fresh: Examples) -> dict[str, float]:
        undecided = fresh.of(fresh.depth != FINISHED)
        if not len(undecided.logits):
            return {}
        predicted = self.calibration(undecided.logits, undecided.depth)
        against = (predicted, undecided.share, undecided.visits)
        return {
            "critic/ece": expected_calibration_error(*against, bins=BINS),
            "critic/brier": brier_score(*against),
        }

    def _learn(self, fresh: Examples) -> None:
        self.seen.append(fresh)
        self.calls += 1
        if self.calls % self.refit_every == 0 or not self.calibration.fitted:
            self.calibration.fit(join_examples(self.seen))


def _means(members: Sequence[Float[Tensor, "M _"]]) -> list[list[float]]:
    return [row.mean(dim=0).tolist() for row in members]


def visited_states(
    rollouts: RolloutBatch,
    steps: Sequence[Sequence[Step]],
    logits: Sequence[Sequence[float]],
    starts: Sequence[float] | None,
    correct: Bool[Tensor, " B"],
    unjudged: Collection[int],
) -> Examples:
    """Each (problem, state) once, the problems' own states included where their logits are known.

    A rollout counts once in a state, however often it came back; one that was not judged counts nowhere. Where a critic
    sees more than the state, the state's logit is the mean over its visits. ``logits`` are those of the legal steps,
    ``starts`` those of the P problems before any step.
    """
    visited: dict[tuple[int, object], list[tuple[float, int, bool]]] = {}
    for row, right in enumerate(correct.tolist()):
        if row in unjudged:
            continue
        group = row // rollouts.group_size
        start = start_of(rollouts.problem_of(row))
        own = {
            identity_of(step): (logit, depth_of(step, index, start), right)
            for index, (step, logit) in enumerate(zip(steps[row], logits[row], strict=True))
        }
        if starts is not None and start is not None:
            own[identity_of(start)] = (starts[group], depth_of(start, 0, start), right)
        for state, visit in own.items():
            visited.setdefault((group, state), []).append(visit)
    states = list(visited.values())
    return Examples(
        logits=_column([mean([logit for logit, _, _ in visits]) for visits in states]),
        depth=torch.tensor([visits[0][1] for visits in states], dtype=torch.long),
        share=_column([mean([float(right) for _, _, right in visits]) for visits in states]),
        visits=_column([float(len(visits)) for visits in states]),
    )


def _column(values: Sequence[float]) -> Float[Tensor, " N"]:
    return torch.tensor(values, dtype=torch.float64)
