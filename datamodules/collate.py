"""The batch of problems that crosses Lightning on its way from the prompts to the policy."""

from __future__ import annotations

from collections.abc import Sequence

from contrastive_reasoning.policies.flops import NO_WORK
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem


class ProblemBatch:
    """P problems, and the rollouts that a callback draws for them.

    A plain class on purpose: Lightning walks dicts, lists and dataclasses when it moves a batch to the device and
    raises on frozen ones, but leaves a plain object alone; what the callback puts in is what ``training_step`` sees.
    """

    def __init__(self, problems: Sequence[Problem], *, counted: int | None = None) -> None:
        self.problems = tuple(problems)
        self.counted = len(self.problems) if counted is None else counted
        """How many of them, from the first on, are this rank's own; those after only fill it up and are not scored."""
        self.rollouts: RolloutBatch | None = None
        """Sampled while training, greedy while validating."""
        self.sampled: RolloutBatch | None = None
        """While validating: several sampled rollouts per problem."""
        self.generated = NO_WORK
        """All that was drawn for this step of training, what was thrown away too; ``projected`` are its tokens."""

    def __len__(self) -> int:
        return len(self.problems)
