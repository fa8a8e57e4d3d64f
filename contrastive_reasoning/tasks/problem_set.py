"""Problem sets as tasks: GSM8K, MATH, multiple choice, and any set whose rows a format can read.

Splits are read from rows, or split off the training set by a hash of the question. Completions are verified against
gold answers (``AnswerTask``) or by a user-defined function (``FunctionTask``). The steps are the sentences of a
completion. Offline, generated problems can replace the real set (``stand_in_task``).
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, get_args

from contrastive_reasoning.ranges import at_least, one_of
from contrastive_reasoning.tasks.answer import (
    NO_BOX,
    check_golds,
    has_box,
    in_asked_measure,
    verify_answer,
    verify_choice,
)
from contrastive_reasoning.tasks.answer.extract import THOUGHT_ENDS, without_thoughts
from contrastive_reasoning.tasks.base import CORRECT_IN, Problem, Split, Step, Task, Verdict, make_tuples, unparsed
from contrastive_reasoning.tasks.formats import without_instruction
from contrastive_reasoning.tasks.rows import Format, OnBad, ReadSet, Rows, read_set

Judge = Literal["answer", "choice"]
Accept = Literal["boxed", "any"]
Source = Literal["hub", "generated"]
VerifyMany = Callable[[Sequence[tuple[str, str]], Judge], list[Verdict]]
"""Maps (gold, completion) pairs to their verdicts."""
VerifyProblems = Callable[[Sequence[Problem], Sequence[str]], list[Verdict]]
"""Maps problems and one completion of each to their verdicts."""
MAX_STEPS = 5_000
"""The most steps that are read from a completion; the rest is ignored."""

_SENTENCE_END = re.compile(r"\n+|(?<=[.!?])[ \t]+(?=[A-Z0-9$\\(\[*])")
"""The end of a line, or the space between ``.``, ``!`` or ``?`` and what looks like the start of a sentence or a
formula."""
_NAMES = {"train": "training", "validation": "validation", "test": "test"}
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ProblemSet:
    """Rows and their splits: a task without its verifier. The rows are read once, on the first call of ``problems``.

    No question is in two splits. A question of the test set is left out of training and validation, and a question of
    the validation set is left out of training. A hash of the question selects the problems that are split off the
    training set.
    """

    name: str
    train: Rows | None
    """None for a set that is only used for evaluation."""
    validation: Rows | None
    """None: ``validation_problems`` problems are split off the training set. ``test`` works likewise."""
    test: Rows | None
    path: str | None
    """A local file or folder to read instead of the rows' own source. A single file is the training set, from which the
    other splits are split off; without ``train`` it is the test set."""
    format: Format
    on_bad: OnBad
    """What to do with rows that are not problems or have a faulty gold answer: ``refuse`` or ``leave_out``."""
    train_problems: int | None
    """Number of training problems: the first ones that the other splits leave. None: all."""
    validation_problems: int
    test_problems: int

    def __post_init__(self) -> None:
        one_of(get_args(OnBad), on_bad=self.on_bad)
        if self.train_problems is not None:
            at_least(1, train_problems=self.train_problems)
        at_least(0, validation_problems=self.validation_problems, test_problems=self.test_problems)
        if self.train is None and self.test is None:
            raise ValueError("train and test are both null: a task needs rows")

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of a split, identical in every process.

        Raises:
            ValueError: if the split is unknown, rows cannot be used, or there are too few rows to split off the others.
            OSError: if the rows cannot be read.
        """
        one_of(get_args(Split), split=split)
        problems = _problems(self, split)
        return problems[: self.train_problems] if split == "train" else problems

    def faulty_golds(self, golds: Sequence[str]) -> list[tuple[int, str]]:
        """Index and reason of each gold answer that does not verify itself; subclasses with gold answers override."""
        return []

    def left_out(self, split: Split) -> Sequence[str]:
        """The rows left out of the file that a split is read from, with their reasons."""
        return _read(self, split if self.own_rows(split) else "train").left_out

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        return sentence_steps(completion)

    def scores(self, problem: Problem, completion: str) -> Mapping[str, float]:
        return {}  # scored by the verdict alone

    def own_rows(self, split: Split) -> Rows | None:
        """The rows that a split is read from; None if it has none, for example if it is split off the training set."""
        rows = {"train": self.train, "validation": self.validation, "test": self.test}[split]
        if rows is None or self.path is None:
            return rows
        if self.train is not None and split != "train" and is_one_file(self.path):
            return None
        return rows.at(self.path)


def is_one_file(path: str) -> bool:
    """Whether a local path is that of a single file. It may contain ``~``, and ``*`` in the file name."""
    here = Path(path).expanduser()
    found = [*here.parent.glob(here.name)] if "*" in here.name else [here]
    return len(found) == 1 and found[0].is_file()


@dataclass(frozen=True, kw_only=True)
class AnswerTask(ProblemSet):
    """A problem set that verifies completions by comparing their answers with gold answers.

    A gold answer is faulty if it does not verify itself.
    """

    judge: Judge
    """``answer``: the answer must equal the gold answer; ``choice``: it must be the gold letter."""
    # compare=False leaves it out of the hash as well: the caches of problems do not depend on it
    verifier: VerifyMany | None = field(compare=False)
    """Verifies many completions at once in its own processes. None: verify in this process."""
    thought_ends: Sequence[str] = THOUGHT_ENDS
    """Tags that end the thoughts of a completion, by model family. Only the text after the last one is verified. The
    tags in ``THOUGHT_ENDS`` always apply, whether listed here or not."""
    accept: Accept = "any"
    """``boxed``: only a boxed answer counts; ``any``: an answer stated in the last line counts too. A verdict's
    ``fields`` hold the outcome for both forms."""

    def __post_init__(self) -> None:
        one_of(get_args(Judge), judge=self.judge)
        one_of(get_args(Accept), accept=self.accept)
        make_tuples(self, "thought_ends")
        super().__post_init__()

    def faulty_golds(self, golds: Sequence[str]) -> list[tuple[int, str]]:
        return check_golds(golds, verify=self._verify, other_spellings=self.train is not None)

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return self.verify_all([problem], [completion])[0]

    def verify_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        completions = [without_thoughts(text, self.thought_ends) for text in completions]
        verdicts = self._in_any_form(problems, completions)
        rows = zip(problems, completions, verdicts, strict=True)
        return [self._accepted(problem, text, verdict) for problem, text, verdict in rows]

    def _accepted(self, problem: Problem, completion: str, verdict: Verdict) -> Verdict:
        """The verdict in the accepted form, given the verdict in any form; ``fields`` hold the outcome of each form."""
        boxed = self._boxed(problem, completion, verdict)
        correct_in: dict[Accept, bool] = {"boxed": boxed.correct, "any": verdict.correct}
        return replace(boxed if self.accept == "boxed" else verdict, fields={CORRECT_IN: correct_in})

    def _boxed(self, problem: Problem, completion: str, verdict: Verdict) -> Verdict:
        """The verdict on the boxed answer, given the verdict on an answer in any form."""
        if self.judge == "choice":
            boxed = verify_choice(problem.answer, completion, boxed_only=True)
        else:
            readable = has_box(completion) or verdict.status in ("unparsed", "error")
            boxed = verdict if readable else unparsed(NO_BOX)
        return unparsed("not boxed") if verdict.correct and not boxed.correct else boxed

    def _in_any_form(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
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
            return self.verifier(pairs, self.judge)
        return [self._verify(gold, text) for gold, text in pairs]

    @property
    def _verify(self) -> Callable[[str, str], Verdict]:
        return verify_choice if self.judge == "choice" else verify_answer


@dataclass(frozen=True, kw_only=True)
class FunctionTask(ProblemSet):
    """A problem set whose completions are verified by a function; only that function uses the gold answers."""

    verifier: VerifyProblems = field(compare=False)

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return self.verify_all([problem], [completion])[0]

    def verify_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        return self.verifier(problems, completions)


def question_key(problem: Problem) -> str:
    """A key that is equal for questions that differ only in spacing, case and instruction."""
    return " ".join(without_instruction(problem.prompt).split()).casefold()


def sentence_steps(text: str) -> list[Step]:
    """Returns one step per non-blank sentence or line, without surrounding whitespace; its state is the step count.

    ``"2+3 = 5. So 5·2 = 10.\\nThe answer is 10."`` has three steps, with the states 1, 2 and 3.
    """
    steps: list[Step] = []
    start = 0
    for found in [*_SENTENCE_END.finditer(text), None]:
        piece = text[start : found.start() if found else None]
        if piece.strip() and len(steps) < MAX_STEPS:
            first, state = start + len(piece) - len(piece.lstrip()), len(steps) + 1
            # one past the character that shows the end: the line end itself, or the character after the space
            settled = len(text) + 1 if not found else found.start() + 1 if found[0][0] == "\n" else found.end() + 1
            steps.append(Step(start=first, end=first + len(piece.strip()), state=state, legal=True, settled=settled))
        start = found.end() if found else len(text)
    return steps


@lru_cache(maxsize=64)
def _problems(problem_set: ProblemSet, split: Split) -> tuple[Problem, ...]:
    """The problems of one split, without those of other splits; test takes precedence over validation over training."""
    if split == "test" and problem_set.own_rows("test"):
        return _read(problem_set, "test").problems
    if split == "validation" and problem_set.own_rows("validation"):
        return _drop_reserved(problem_set, "validation", by=("test",))
    if not problem_set.own_rows("train"):
        return ()
    pool = _drop_reserved(problem_set, "train", by=("test", "validation"))
    parts = _split_off(problem_set, frozenset(map(question_key, pool)))
    return tuple([problem for problem in pool if parts.get(question_key(problem), "train") == split])


@lru_cache(maxsize=64)
def _drop_reserved(problem_set: ProblemSet, split: Split, *, by: tuple[Split, ...]) -> tuple[Problem, ...]:
    """The problems of a split whose questions do not occur in the rows of the splits ``by``.

    Raises:
        ValueError: if no training problem is left.
    """
    others = [other for other in by if problem_set.own_rows(other)]
    reserved = {question_key(problem) for other in others for problem in _read(problem_set, other).problems}
    problems = _read(problem_set, split).problems
    kept = tuple([problem for problem in problems if question_key(problem) not in reserved])
    stand = f"{_NAMES[split]} rows stand in the {' or '.join([_NAMES[other] for other in others])} set, too"
    if not kept and split == "train":
        raise ValueError(f"{problem_set.name}: all {len(problems)} {stand}: no problem is left to train on")
    if len(kept) < len(problems):
        left_out = len(problems) - len(kept)
        _LOG.warning("%s: %d of %d %s, and are left out", problem_set.name, left_out, len(problems), stand)
    return kept


def _split_off(problem_set: ProblemSet, keys: frozenset[str]) -> Mapping[str, str]:
    """Maps questions of the training set to the split that they are split off to: the first ones in hash order."""
    tests = 0 if problem_set.own_rows("test") else problem_set.test_problems
    validations = 0 if problem_set.own_rows("validation") else problem_set.validation_problems
    if tests + validations >= len(keys):
        asked = f"{validations} validation and {tests} test problems"
        elsewhere = len({question_key(problem) for problem in _read(problem_set, "train").problems}) - len(keys)
        more = f" ({elsewhere} more stand in the rows of another split, too)" if elsewhere else ""
        raise ValueError(f"{problem_set.name}: {asked} cannot be split off {len(keys)} different problems{more}")
    ordered = sorted(keys, key=lambda key: hashlib.sha256(key.encode()).digest())
    return dict.fromkeys(ordered[:tests], "test") | dict.fromkeys(ordered[tests : tests + validations], "validation")


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


def problem_sets(
    *,
    path: str | None,
    rows: Rows,
    format: Format,
    on_bad: OnBad,
    verifier: VerifyMany | None,
    answers: Mapping[str, str],
    choices: Mapping[str, str],
    thought_ends: Sequence[str] = THOUGHT_ENDS,
    accept: Accept = "any",
) -> dict[str, AnswerTask]:
    """Builds one task per set, for many sets of one format in one folder. All rows are test problems. Reads nothing.

    Args:
        path: the folder or the URL that contains the files. None: reading raises.
        rows: how a file is read; each set reads its own file.
        format, on_bad, verifier, thought_ends, accept: as in :class:`AnswerTask`.
        answers: name → file of the sets whose gold is an answer.
        choices: name → file of the sets whose gold is a letter.

    Raises:
        ValueError: if a name is in both ``answers`` and ``choices``.
    """
    if both := sorted(answers.keys() & choices.keys()):
        raise ValueError(f"{', '.join(both)}: named among the answers and among the choices")
    judges: dict[str, Judge] = {**dict.fromkeys(answers, "answer"), **dict.fromkeys(choices, "choice")}
    return {
        name: AnswerTask(
            name=name,
            train=None,
            validation=None,
            test=rows,
            path=None if path is None else f"{path.rstrip('/')}/{file}",
            format=format,
            judge=judges[name],
            on_bad=on_bad,
            train_problems=None,
            validation_problems=0,
            test_problems=0,
            verifier=verifier,
            thought_ends=thought_ends,
            accept=accept,
        )
        for name, file in (*answers.items(), *choices.items())
    }


def stand_in_task(
    *,
    source: Source,
    path: str | None,
    real: Task,
    generated: Task,
    train_problems: int | None,
    validation_problems: int | None,
    test_problems: int | None,
    accept: Accept = "any",
) -> Task:
    """Returns the real problem set, or the generated one if ``source`` is ``generated`` and ``path`` is None.

    Args:
        source: ``hub``: the real set by its name on the hub; ``generated``: its stand-in.
        path: a local file or folder with the real set; if given, the real set is used for every ``source``.
        train_problems, validation_problems, test_problems: None: the chosen task's own number.
        accept: the ``accept`` of the real set; only validated here. In the generated stories only a box counts.
    """
    one_of(get_args(Source), source=source)
    one_of(get_args(Accept), accept=accept)
    chosen: Any = generated if source == "generated" and path is None else real
    wanted = {"train": train_problems, "validation": validation_problems, "test": test_problems}
    return replace(chosen, **{f"{split}_problems": size for split, size in wanted.items() if size is not None})
