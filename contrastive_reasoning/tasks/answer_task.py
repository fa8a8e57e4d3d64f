"""Problems with one short answer as a task: GSM8K, MATH, multiple choice, and any set whose rows a format can read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from contrastive_reasoning.tasks.answer import check_golds, in_asked_measure, verify_answer, verify_choice
from contrastive_reasoning.tasks.base import Problem, Verdict
from contrastive_reasoning.tasks.problem_set import ProblemSet

Judge = Literal["answer", "choice"]
VerifyMany = Callable[[Sequence[tuple[str, str]], Judge], list[Verdict]]
"""(gold, completion) pairs → their verdicts."""


@dataclass(frozen=True, kw_only=True)
class AnswerTask(ProblemSet):
    """A problem set whose answers the house can judge; a gold answer that does not verify itself is at fault."""

    judge: str
    """``answer``: equal to the gold answer; ``choice``: the gold letter."""
    verifier: VerifyMany | None = field(compare=False)
    """Judges many completions at once, in processes of its own; None: in this process."""

    def __post_init__(self) -> None:
        if self.judge not in get_args(Judge):
            raise ValueError(f"judge must be one of {', '.join(get_args(Judge))}, got {self.judge!r}")
        super().__post_init__()

    def faulty_golds(self, golds: Sequence[str]) -> list[tuple[int, str]]:
        return check_golds(golds, verify=self._verify)

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return self.verify_all([problem], [completion])[0]

    def verify_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """The verdict on each completion, given its problem."""
        verdicts = self._judged([(one.answer, text) for one, text in zip(problems, completions, strict=True)])
        if self.judge == "choice":
            return verdicts
        rows = enumerate(zip(problems, completions, verdicts, strict=True))
        again = {
            row: pair
            for row, (problem, text, verdict) in rows
            if not verdict.correct and (pair := in_asked_measure(problem.prompt, problem.answer, text)) is not None
        }
        for row, verdict in zip(again, self._judged(list(again.values())), strict=True):
            verdicts[row] = verdict if verdict.correct else verdicts[row]
        return verdicts

    def _judged(self, pairs: Sequence[tuple[str, str]]) -> list[Verdict]:
        if self.verifier is not None and pairs:
            return self.verifier(pairs, self.judge)  # pyright: ignore[reportArgumentType]
        return [self._verify(gold, text) for gold, text in pairs]

    @property
    def _verify(self) -> Callable[[str, str], Verdict]:
        return verify_choice if self.judge == "choice" else verify_answer
