"""Problems of one's own, judged by a function of one's own: rows and a Python function are all that a task needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from contrastive_reasoning.tasks.base import Problem, Split, Step, Verdict
from contrastive_reasoning.tasks.formats import Format
from contrastive_reasoning.tasks.problem_set import ProblemSet
from contrastive_reasoning.tasks.read_set import Rows
from contrastive_reasoning.tasks.sentences import sentence_steps

VerifyProblems = Callable[[Sequence[Problem], Sequence[str]], list[Verdict]]
"""Problems and a completion of each → their verdicts."""


@dataclass(frozen=True, kw_only=True)
class FunctionTask:
    """A problem set whose completions a function judges. Building one reads nothing: see :class:`ProblemSet`."""

    name: str
    train: Rows | None
    """None for a set that is only evaluated."""
    validation: Rows | None
    """None: ``validation_problems`` are split off the training set."""
    test: Rows | None
    """None: ``test_problems`` are split off the training set."""
    path: str | None
    """Read from this local file or folder in place of the rows' own. Of a single file what is missing is split off."""
    format: Format
    on_bad: str
    """Rows that cannot be posed: ``refuse`` or ``leave_out``."""
    train_problems: int | None
    """How many are trained on; None: all."""
    validation_problems: int
    test_problems: int
    verifier: VerifyProblems = field(compare=False)

    def __post_init__(self) -> None:
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
            check_golds=nothing_to_check,
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

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return self.verify_all([problem], [completion])[0]

    def verify_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """The verdict on each completion, given its problem."""
        return self.verifier(problems, completions)

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        """Its sentences: see :func:`sentence_steps`."""
        return sentence_steps(completion)

    def scores(self, problem: Problem, completion: str) -> Mapping[str, float]:
        """None: such problems are scored by the verdict alone."""
        return {}


def nothing_to_check(golds: Sequence[str]) -> list[tuple[int, str]]:
    """A gold answer is for the function alone to read."""
    return []
