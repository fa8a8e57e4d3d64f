"""The basic types of a task: problem, prompt, verdict on a completion, reasoning step, split and the task protocol."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, get_args, runtime_checkable

from contrastive_reasoning.ranges import one_of

T = TypeVar("T")
Status = Literal["ok", "wrong", "unparsed", "timeout", "error"]
Split = Literal["train", "validation", "test"]
REPEATS = 1_000
"""Consecutive repeated draws after which a space counts as exhausted."""


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A task instance with its answer."""

    id: str
    """Unique within the task; the same problem has the same id in every process."""
    prompt: str
    """The text given to the policy, before any chat template."""
    answer: str
    """The gold answer, in the task's own notation."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Further properties of the problem, for example its source or its difficulty."""


class Message(NamedTuple):
    """One turn of a conversation."""

    role: str
    """``system``, ``user`` or ``assistant``."""
    content: str


class ChatPrompt(str):
    """A prompt of several messages: a system message, earlier turns, and the user's question last.

    Its string value is the concatenated contents of the messages. A policy with a chat template uses the messages, and
    any other policy uses the string. Code without support for messages (logs, figures, the hash that splits problems)
    treats it as an ordinary prompt.
    """

    messages: tuple[Message, ...]

    def __new__(cls, messages: Sequence[tuple[str, str]]) -> ChatPrompt:
        prompt = super().__new__(cls, "\n\n".join(content for _, content in messages))
        prompt.messages = tuple(Message(*message) for message in messages)
        return prompt

    # without it, a pickle or a copy would call ``__new__`` with the joined text
    def __getnewargs__(self) -> tuple[tuple[Message, ...]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (self.messages,)


def messages_of(prompt: str) -> tuple[Message, ...]:
    """The messages of a prompt; a plain string is a single user message."""
    return prompt.messages if isinstance(prompt, ChatPrompt) else (Message("user", prompt),)


CORRECT_IN = "correct_in"
"""Key in a verdict's ``fields``; its value maps each answer form (``boxed``, ``any``) to whether the completion is
correct in that form."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verifier's decision on one completion, with its reason. Reasons are counted and logged."""

    status: Status
    reason: str
    """One short clause. One kind of failure has the same clause, except for the numbers in it. Empty for ``ok``."""
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        one_of(get_args(Status), status=self.status)

    @property
    def correct(self) -> bool:
        return self.status == "ok"

    @property
    def judged(self) -> bool:
        """False if the verification itself failed, so that the correctness of the completion is unknown."""
        return self.status != "error"


OK = Verdict(status="ok", reason="")


def correct_in_forms(verdicts: Sequence[Verdict]) -> dict[str, list[bool]]:
    """Maps each answer form to whether each completion is correct in it; empty if any verdict lacks its forms."""
    known = [verdict.fields[CORRECT_IN] for verdict in verdicts if CORRECT_IN in verdict.fields]
    if not known or len(known) < len(verdicts):
        return {}
    return {form: [forms[form] for forms in known] for form in known[0]}


def wrong(reason: str) -> Verdict:
    return Verdict(status="wrong", reason=reason)


def unparsed(reason: str) -> Verdict:
    return Verdict(status="unparsed", reason=reason)


@dataclass(frozen=True, kw_only=True)
class Step:
    """One reasoning step: its characters ``start`` … ``end`` − 1 in the completion, and the state that it reaches."""

    start: int
    end: int
    state: Any
    """The state after the step, in the task's own form; for Countdown, the tuple of numbers left."""
    legal: bool
    """False for a move that the rules forbid; ``state`` is then the state before the move."""
    settled: int | None = None
    """One past the character that shows that the step is complete, for example its separator. Before that, the text
    that follows can still change the step. It lies beyond the text if only the end of the text completes the step.
    None means ``end``.
    """
    lost: bool = False
    """Whether no completion with this beginning can still be correct."""


@runtime_checkable
class Task(Protocol):
    """The interface of a task. Constructing an implementation must not load or generate anything."""

    @property
    def name(self) -> str: ...

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of one split, identical in every process; no problem is in two splits."""
        ...

    def verify(self, problem: Problem, completion: str) -> Verdict: ...

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]: ...

    def scores(self, problem: Problem, completion: str) -> Mapping[str, float]:
        """The benchmark's own scores by name, ``part/quantity`` (``longproc/accuracy``), each in its own range."""
        ...


@runtime_checkable
class VerifiesTogether(Protocol):
    """A task that verifies a whole batch at once, for example in several processes."""

    def verify_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """The verdict on each completion, paired with the problem at the same index; equals :meth:`Task.verify`."""
        ...


def make_tuples(instance: object, *names: str) -> None:
    """Converts fields of a frozen dataclass to tuples: a list has no hash, and the caches of problems need one."""
    for name in names:
        object.__setattr__(instance, name, tuple(getattr(instance, name)))


def split_of(key: str) -> Split:
    """The split of a generated problem by a hash of its key: 80% train, 10% validation, 10% test, for every seed."""
    bucket = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big") % 10
    return ("validation", "test")[bucket] if bucket < 2 else "train"


def distinct(draws: Iterable[T], key: Callable[[T], str], *, space: object, what: str) -> Iterator[T]:
    """Yields the draws in order, without those that repeat a key. A longer list therefore begins with the shorter one.

    Raises:
        ValueError: after ``REPEATS`` consecutive repeated draws; the message contains ``space`` and ``what``.
    """
    seen: set[str] = set()
    repeats = 0
    for drawn in draws:
        repeats = repeats + 1 if key(drawn) in seen else 0
        if not repeats:
            seen.add(key(drawn))
            yield drawn
        elif repeats == REPEATS:
            raise ValueError(f"{space} holds only about {len(seen)} distinct {what}")
