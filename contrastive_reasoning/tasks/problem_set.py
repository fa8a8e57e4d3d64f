"""The problems of a set and their splits: read from rows, or split off the training set by a hash of the question."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import get_args

from contrastive_reasoning.tasks.base import Problem, Split, Step
from contrastive_reasoning.tasks.formats import Format, without_instruction
from contrastive_reasoning.tasks.read_set import OnBad, ReadSet, Rows, read_set
from contrastive_reasoning.tasks.sentences import sentence_steps

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ProblemSet:
    """Rows, and how they are shared out: a task without its judge. Building one reads nothing; ``problems`` does, once.

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
    on_bad: str
    """Rows that are no problem, or whose gold answer is at fault: ``refuse`` or ``leave_out``."""
    train_problems: int | None
    """How many are trained on, the first of what the other splits leave; None: all."""
    validation_problems: int
    test_problems: int

    def __post_init__(self) -> None:
        if self.on_bad not in get_args(OnBad):
            raise ValueError(f"on_bad must be one of {', '.join(get_args(OnBad))}, got {self.on_bad!r}")
        if self.train_problems is not None and self.train_problems < 1:
            raise ValueError(f"train_problems must be at least 1 (or null: all), got {self.train_problems}")
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
        problems = _problems(self, split)
        return problems[: self.train_problems] if split == "train" else problems

    def faulty_golds(self, golds: Sequence[str]) -> list[tuple[int, str]]:
        """Place and reason of gold answers that do not verify themselves; none here, for who extends this judges."""
        return []

    def left_out(self, split: Split) -> Sequence[str]:
        """The rows that are no problem, with their reasons, of the file that a split is read from."""
        return _read(self, split).left_out if self.own_rows(split) else _read(self, "train").left_out

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        """Its sentences: see :func:`sentence_steps`."""
        return sentence_steps(completion)

    def scores(self, problem: Problem, completion: str) -> Mapping[str, float]:
        """None: such sets are scored by the verdict alone."""
        return {}

    def own_rows(self, split: Split) -> Rows | None:
        """Where a split is read from; None where it is split off the training set."""
        rows = {"train": self.train, "validation": self.validation, "test": self.test}[split]
        if rows is None or self.path is None:
            return rows
        if self.train is not None and split != "train" and Path(self.path).is_file():
            return None
        return rows.at(self.path)


def question_key(problem: Problem) -> str:
    """The same for problems that ask the same, whatever their spacing, case and instruction."""
    return " ".join(without_instruction(problem.prompt).split()).casefold()


@lru_cache(maxsize=64)
def _problems(problem_set: ProblemSet, split: Split) -> tuple[Problem, ...]:
    if split == "test" and problem_set.own_rows("test"):
        return _read(problem_set, "test").problems
    reserved = _keys(problem_set, "test") if problem_set.own_rows("test") else frozenset()
    if split == "validation" and problem_set.own_rows("validation"):
        return tuple(
            [problem for problem in _read(problem_set, "validation").problems if question_key(problem) not in reserved]
        )
    if not problem_set.own_rows("train"):
        return ()
    if problem_set.own_rows("validation"):
        reserved |= _keys(problem_set, "validation")
    pool = [problem for problem in _read(problem_set, "train").problems if question_key(problem) not in reserved]
    parts = _split_off(problem_set, frozenset(map(question_key, pool)))
    return tuple([problem for problem in pool if parts.get(question_key(problem), "train") == split])


def _split_off(problem_set: ProblemSet, keys: frozenset[str]) -> Mapping[str, str]:
    """Which questions of the training set are test and validation problems: the first ones in the order of a hash."""
    tests = 0 if problem_set.own_rows("test") else problem_set.test_problems
    validations = 0 if problem_set.own_rows("validation") else problem_set.validation_problems
    if tests + validations >= len(keys):
        asked = f"{validations} validation and {tests} test problems"
        raise ValueError(f"{problem_set.name}: {asked} cannot be split off {len(keys)} different problems")
    ordered = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())
    return dict.fromkeys(ordered[:tests], "test") | dict.fromkeys(ordered[tests : tests + validations], "validation")


def _keys(problem_set: ProblemSet, split: Split) -> frozenset[str]:
    return frozenset(map(question_key, _read(problem_set, split).problems))


@lru_cache(maxsize=64)
def _read(problem_set: ProblemSet, split: Split) -> ReadSet:
    rows = problem_set.own_rows(split)
    if rows is None:
        return ReadSet((), ())
    read = read_set(
        rows,
        problem_set.format,
        prefix=f"{problem_set.name}/{split}",
        check_golds=problem_set.faulty_golds,
        on_bad=problem_set.on_bad,
    )
    if read.left_out:
        _LOG.warning("%s: %d rows left out, the first %s", rows.source, len(read.left_out), read.left_out[0])
    return read
