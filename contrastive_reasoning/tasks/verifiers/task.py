"""The tasks of an environment of verifiers as problems, and their splits."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from contrastive_reasoning.tasks.answer.extract import THOUGHT_ENDS
from contrastive_reasoning.tasks.base import ChatPrompt, Message, Problem
from contrastive_reasoning.tasks.formats import ROLES
from contrastive_reasoning.tasks.problem_set import FunctionTask, VerifyProblems
from contrastive_reasoning.tasks.rows import BadRow, PlacedRow, Row, as_text
from contrastive_reasoning.tasks.verifiers.environment import full_score_of, taskset_of
from contrastive_reasoning.tasks.verifiers.scoring import verify


@dataclass(frozen=True, kw_only=True)
class TasksetRows:
    """The tasks of an environment, each as a row with the one column ``task``."""

    environment: str
    settings: Mapping[str, Any] | None = field(hash=False)  # a dict has no hash
    most: int | None
    """Number of tasks that are read if there is no end to them; None refuses such an environment."""

    @property
    def source(self) -> str:
        return f"environment={self.environment}"

    def at(self, path: str) -> TasksetRows:
        raise ValueError(f"{self.source} loads its own data, and not {path}")

    def __call__(self) -> Iterator[PlacedRow]:
        """Yields the rows. Raises ValueError if there is no end to them, or if a task cannot be sent to a process."""
        taskset = taskset_of(self.environment, self.settings)
        if not taskset.bounded:
            if self.most is None:
                raise ValueError(f"{self.source} generates tasks without end: set task.train_problems")
            taskset = taskset.take(self.most)
        for index, task in enumerate(taskset):
            if index == 0:
                self._check(task)
            yield PlacedRow(f"task {index}", {"task": task})

    def _check(self, task: Any) -> None:
        try:
            pickle.dumps(task)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.source}: its tasks cannot be sent to the processes that score: {error}") from error


@dataclass(frozen=True, kw_only=True)
class TaskFormat:
    """A task as a problem: its prompt, with its system message as one, and its gold answer if it has one."""

    answer: str | None
    """The field of the task's data that is the gold answer."""

    def __call__(self, row: Row, *, id: str) -> Problem:
        data = row["task"].data
        answer = getattr(data, self.answer, None) if self.answer else None
        gold = str(answer).strip() if isinstance(answer, str | int | float) else ""
        return Problem(id=id, prompt=prompt_of(data), answer=gold, fields=row)


def prompt_of(data: Any) -> str:
    """The prompt of a task's data; a ``ChatPrompt`` if it has more than the user's message.

    Raises:
        BadRow: for a prompt that is not text alone or does not end with the user's message, and for files of a sandbox.
    """
    for name in ("image", "skills", "artifacts"):
        if getattr(data, name):
            raise BadRow(f"it has {name}, and there is no sandbox here")
    if data.prompt is None:
        raise BadRow("it has no prompt, so a user would begin the conversation")
    whole = isinstance(data.prompt, str)
    turns = [("user", data.prompt)] if whole else [(one.role, one.content) for one in data.prompt]
    if data.system_prompt is not None:
        turns.insert(0, ("system", data.system_prompt))
    roles = [role for role, _ in turns]
    if roles[-1:] != ["user"] or "system" in roles[1:] or not {*roles} <= {*ROLES}:
        raise BadRow(
            "its messages must be at most one system message first and the user's last, got "
            f"{', '.join(roles) or 'none'}"
        )
    messages = [Message(role, as_text(_text_in(content), "a message")) for role, content in turns]
    return messages[0].content if len(messages) == 1 else ChatPrompt(messages)


def _text_in(content: Any) -> str | None:
    if content is None or isinstance(content, str):
        return content
    if any(part.type != "text" for part in content):
        raise BadRow("a message has an image")
    return "\n".join(part.text for part in content)


def verifiers_task(
    *,
    name: str,
    environment: str,
    settings: Mapping[str, Any] | None,
    test_settings: Mapping[str, Any] | None,
    answer: str | None,
    full_score: float | None,
    train_problems: int | None,
    validation_problems: int,
    test_problems: int,
    verifier: Callable[..., VerifyProblems],
    thought_ends: Sequence[str] = THOUGHT_ENDS,
) -> FunctionTask:
    """A task of one environment. Its data are loaded when problems are first read.

    Args:
        environment: the name of the installed package.
        settings: values of its taskset's configuration; None, and those left out: the environment's own.
        test_settings: the values that differ for the test problems, such as ``{split: test}``. None: test problems are
            split off by a hash of the question.
        answer: the field of its tasks' data that is the gold answer; None: they have none.
        full_score: the total from which a completion is correct; None: the sum of the rewards' positive weights.
        train_problems: number of training problems; None: all.
        validation_problems: number of problems split off the training set.
        test_problems: the same for test, if there are no ``test_settings``. No question is in two splits.
        verifier: builds the verifier from its ``function``.
        thought_ends: tags that end a completion's thoughts; the reply follows them.

    Raises:
        ModuleNotFoundError: if the library is not installed.
        ValueError: for an environment that is not installed or cannot be used, a setting that it refuses, or a
            ``full_score`` that is not positive.
    """
    taskset = taskset_of(environment, settings)
    full = full_score_of(taskset) if full_score is None else full_score
    if not full > 0:
        raise ValueError(f"full_score must be positive, got {full:g}")
    of_test = None if test_settings is None else {**(settings or {}), **test_settings}
    if of_test is not None:
        taskset_of(environment, of_test)
    split_off = validation_problems + (test_problems if of_test is None else 0)
    most = None if train_problems is None else train_problems + split_off
    kind = type(taskset).task_type()
    scale = {"full_score": full, "highest": full_score is None}
    return FunctionTask(
        name=name,
        train=TasksetRows(environment=environment, settings=settings, most=most),
        validation=None,
        test=None if of_test is None else TasksetRows(environment=environment, settings=of_test, most=test_problems),
        path=None,
        format=TaskFormat(answer=answer),
        on_bad="refuse",
        train_problems=train_problems,
        validation_problems=validation_problems,
        test_problems=test_problems,
        verifier=verifier(function=partial(verify, **scale, kind=kind, thought_ends=tuple(thought_ends))),
    )
