"""Problems with one short answer as a task: GSM8K, MATH, multiple choice, and any set whose rows a format can read."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Literal, get_args

from contrastive_reasoning.tasks.answer import check_golds, verify_answer, verify_choice
from contrastive_reasoning.tasks.base import Problem, Split, Step, Verdict
from contrastive_reasoning.tasks.formats import Format
from contrastive_reasoning.tasks.problem_set import ProblemSet
from contrastive_reasoning.tasks.read_set import CheckGolds, Rows
from contrastive_reasoning.tasks.sentences import sentence_steps

Judge = Literal["answer", "choice"]
VerifyMany = Callable[[Sequence[tuple[str, str]], Judge], list[Verdict]]
"""(gold, completion) pairs → their verdicts."""

CHECKS: Mapping[str, CheckGolds] = {
    "answer": partial(check_golds, verify=verify_answer),
    "choice": partial(check_golds, verify=verify_choice),
}
"""Made once: what was read is found again by the very object."""


@dataclass(frozen=True, kw_only=True)
class AnswerTask:
    """A problem set whose answers the house can judge. Building one reads nothing: see :class:`ProblemSet`."""

    name: str
    train: Rows | None
    """None for a set that is only evaluated."""
    validation: Rows | None
    """None: ``validation_problems`` are split off the training set."""
    test: Rows | None
    """None: ``test_problems`` are split off the training set."""
    path: str | None
    """Read from this local file or folder in place of the rows' own. A single file is the training set, and what is
    missing is split off it; without ``train`` it is the test set."""
    format: Format
    judge: str
    """``answer``: equal to the gold answer; ``choice``: the gold letter."""
    on_bad: str
    """Rows without a question or an answer, or whose gold does not verify itself: ``refuse`` or ``leave_out``."""
    train_problems: int | None
    """How many are trained on; None: all."""
    validation_problems: int
    test_problems: int
    verifier: VerifyMany | None = field(compare=False)
    """Judges many completions at once, in processes of its own; None: in this process."""

    def __post_init__(self) -> None:
        if self.judge not in get_args(Judge):
            raise ValueError(f"judge must be one of {', '.join(get_args(Judge))}, got {self.judge!r}")
        _ = self.rows  # which refuses what cannot be meant

    @property
    def rows(self) -> ProblemSet:
        """The problems and their splits."""
        return ProblemSet(
            name=self.name,
            train=self.train,
            validation=self.validation,
            test=self.test,
            path=self.path,
            format=self.format,
            check_golds=CHECKS[self.judge],
            on_bad=self.on_bad,
            train_problems=self.train_problems,
            validation_problems=self.validation_problems,
            test_problems=self.test_problems,
        )

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split, the same in every process: see :meth:`ProblemSet.problems`."""
        return self.rows.problems(split)

    def left_out(self, split: Split) -> Sequence[str]:
        """The rows that are no problem, with their reasons, of the file that a split is read from."""
        return self.rows.left_out(split)

    def own_rows(self, split: Split) -> Rows | None:
        """Where a split is read from; None where it is split off the training set."""
        return self.rows.own_rows(split)

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return self.verify_all([problem], [completion])[0]

    def verify_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """The verdict on each completion, given its problem."""
        pairs = [(problem.answer, text) for problem, text in zip(problems, completions, strict=True)]
        if self.verifier is not None:
            return self.verifier(pairs, self.judge)  # pyright: ignore[reportArgumentType]
        verify = verify_choice if self.judge == "choice" else verify_answer
        return [verify(gold, text) for gold, text in pairs]

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        """Its sentences: see :func:`sentence_steps`."""
        return sentence_steps(completion)

    def scores(self, problem: Problem, completion: str) -> Mapping[str, float]:
        """None: such sets are scored by the verdict alone."""
        return {}
