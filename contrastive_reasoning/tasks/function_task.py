"""Problems of one's own, judged by a function of one's own: rows and a Python function are all that a task needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from contrastive_reasoning.tasks.base import Problem, Verdict
from contrastive_reasoning.tasks.problem_set import ProblemSet

VerifyProblems = Callable[[Sequence[Problem], Sequence[str]], list[Verdict]]
"""Problems and a completion of each → their verdicts."""


@dataclass(frozen=True, kw_only=True)
class FunctionTask(ProblemSet):
    """A problem set whose completions a function judges; gold answers are for that function alone to read."""

    verifier: VerifyProblems = field(compare=False)

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return self.verify_all([problem], [completion])[0]

    def verify_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """The verdict on each completion, given its problem."""
        return self.verifier(problems, completions)
