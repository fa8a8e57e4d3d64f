"""Problems with one short answer as a task: GSM8K, MATH, multiple choice, and any set whose rows a format can read."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal, get_args

from contrastive_reasoning.tasks.answer import check_golds, verify_answer, verify_choice
from contrastive_reasoning.tasks.base import Problem, Split, Step, Verdict
from contrastive_reasoning.tasks.formats import Format, without_instruction
from contrastive_reasoning.tasks.read_set import OnBad, ReadSet, Rows, read_set
from contrastive_reasoning.tasks.sentences import sentence_steps

Judge = Literal["answer", "choice"]
VerifyMany = Callable[[Sequence[tuple[str, str]], Judge], list[Verdict]]
"""(gold, completion) pairs → their verdicts."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class AnswerTask:
    """A problem set. Building one reads nothing; ``problems`` does, once per process.

    No question is in two splits: one that also stands in the test set is left out of training and validation, one of
    the validation set out of training. What is split off the training set is chosen by a hash of the question.
    """

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
    validation_problems: int
    test_problems: int
    verifier: VerifyMany | None = field(compare=False)
    """Judges many completions at once, in processes of its own; None: in this process."""

    def __post_init__(self) -> None:
        for name, choices in (("judge", Judge), ("on_bad", OnBad)):
            if getattr(self, name) not in get_args(choices):
                raise ValueError(f"{name} must be one of {', '.join(get_args(choices))}, got {getattr(self, name)!r}")
        for name in ("validation_problems", "test_problems"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} must be ≥ 0, got {getattr(self, name)}")
        if self.train is None and self.test is None:
            raise ValueError("train and test are both null: a task needs rows")

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split, the same in every process.

        Raises:
            ValueError: on an unknown split, rows that cannot be used, or too few to split off what is asked for.
            OSError: where the rows cannot be read.
        """
        if split not in get_args(Split):
            raise ValueError(f"split must be one of {', '.join(get_args(Split))}, got {split!r}")
        return _problems(self, split)

    def left_out(self, split: Split) -> Sequence[str]:
        """The rows that are no problem, with their reasons, of the file that a split is read from."""
        return _read(self, split).left_out if self.own_rows(split) else _read(self, "train").left_out

    def own_rows(self, split: Split) -> Rows | None:
        """Where a split is read from; None where it is split off the training set."""
        rows = {"train": self.train, "validation": self.validation, "test": self.test}[split]
        if rows is None or self.path is None:
            return rows
        if self.train is not None and split != "train" and Path(self.path).is_file():
            return None
        return rows.at(self.path)

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


def question_key(problem: Problem) -> str:
    """The same for problems that ask the same, whatever their spacing, case and instruction."""
    return " ".join(without_instruction(problem.prompt).split()).casefold()


@lru_cache(maxsize=64)
def _problems(task: AnswerTask, split: Split) -> tuple[Problem, ...]:
    if split == "test" and task.own_rows("test"):
        return _read(task, "test").problems
    reserved = _keys(task, "test") if task.own_rows("test") else frozenset()
    if split == "validation" and task.own_rows("validation"):
        return tuple(
            [problem for problem in _read(task, "validation").problems if question_key(problem) not in reserved]
        )
    if not task.own_rows("train"):
        return ()
    if task.own_rows("validation"):
        reserved |= _keys(task, "validation")
    pool = [problem for problem in _read(task, "train").problems if question_key(problem) not in reserved]
    parts = _split_off(task, frozenset(map(question_key, pool)))
    return tuple([problem for problem in pool if parts.get(question_key(problem), "train") == split])


def _split_off(task: AnswerTask, keys: frozenset[str]) -> Mapping[str, str]:
    """Which questions of the training set are test and validation problems: the first ones in the order of a hash."""
    tests = 0 if task.own_rows("test") else task.test_problems
    validations = 0 if task.own_rows("validation") else task.validation_problems
    if tests + validations >= len(keys):
        asked = f"{validations} validation and {tests} test problems"
        raise ValueError(f"{task.name}: {asked} cannot be split off {len(keys)} different problems")
    ordered = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())
    return dict.fromkeys(ordered[:tests], "test") | dict.fromkeys(ordered[tests : tests + validations], "validation")


def _keys(task: AnswerTask, split: Split) -> frozenset[str]:
    return frozenset(map(question_key, _read(task, split).problems))


@lru_cache(maxsize=64)
def _read(task: AnswerTask, split: Split) -> ReadSet:
    rows = task.own_rows(split)
    if rows is None:
        return ReadSet((), ())
    found = read_set(
        rows,
        task.format,
        prefix=f"{task.name}/{split}",
        check_golds=partial(check_golds, verify=verify_choice if task.judge == "choice" else verify_answer),
        on_bad=task.on_bad,
    )
    if found.left_out:
        _LOG.warning("%s: %d rows left out, the first %s", rows.source, len(found.left_out), found.left_out[0])
    return found
