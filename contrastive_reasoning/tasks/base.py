"""The nouns of a task: a problem and its prompt, the verdict on a completion, the steps that it took, the splits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, get_args, runtime_checkable

T = TypeVar("T")
Status = Literal["ok", "wrong", "unparsed", "timeout", "error"]
Split = Literal["train", "validation", "test"]
REPEATS = 1_000
"""Draws in a row that repeat an earlier one before a space counts as exhausted."""


def check_choice(name: str, value: object, choices: Collection[str]) -> None:
    """Raises a ValueError for a value that is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name} must be one of {', '.join(choices)}, got {value!r}")


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
    """Further properties of the problem: its source, its difficulty."""


class Message(NamedTuple):
    """One turn of a conversation."""

    role: str
    """``system``, ``user`` or ``assistant``."""
    content: str


class ChatPrompt(str):
    """A prompt of several messages: a system's, earlier turns, and last the user's question.

    As a string it is their contents, one after another. A policy with a chat template reads the messages, any other the
    text; code that knows nothing of messages (logs, pictures, the hash that splits problems) sees an ordinary prompt.
    """

    messages: tuple[Message, ...]

    def __new__(cls, messages: Sequence[tuple[str, str]]) -> ChatPrompt:
        prompt = super().__new__(cls, "\n\n".join(content for _, content in messages))
        prompt.messages = tuple(Message(*message) for message in messages)
        return prompt

    def __getnewargs__(self) -> tuple[tuple[Message, ...]]:  # pyright: ignore[reportIncompatibleMethodOverride]
        return (self.messages,)


def messages_of(prompt: str) -> tuple[Message, ...]:
    """The messages of a prompt; a plain text is one of the user."""
    return prompt.messages if isinstance(prompt, ChatPrompt) else (Message("user", prompt),)


CORRECT_IN = "correct_in"
"""In a verdict's ``fields``: form of an answer (``boxed``, ``any``) → whether the completion is right in that form."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verifier's decision on one completion, with its reason: reasons are counted and logged, never swallowed."""

    status: Status
    reason: str
    """One short clause, the same for one kind of failure up to the numbers it names; empty when ``status`` is ok."""
    fields: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("status", self.status, get_args(Status))

    @property
    def correct(self) -> bool:
        return self.status == "ok"

    @property
    def judged(self) -> bool:
        """False where the judging itself failed: nothing is known of the completion."""
        return self.status != "error"


OK = Verdict(status="ok", reason="")


def correct_in_forms(verdicts: Sequence[Verdict]) -> dict[str, list[bool]]:
    """Form of an answer → whether each completion is right in it; empty where a verdict does not know its forms."""
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
    """One reasoning step: the characters ``start`` … ``end`` − 1 of the completion and the state it reaches."""

    start: int
    end: int
    state: Any
    """The state after the step, in the task's own form; for Countdown the tuple of numbers left."""
    legal: bool
    """False for a move that the rules forbid; ``state`` is then the state before it."""
    settled: int | None = None
    """One past the character by which a reader knows that the step has ended and what it is, its separator say; beyond
    the text where only its end shows it. Until then what is written next may still make another step of it. None:
    ``end``.
    """
    lost: bool = False
    """Whether no completion that begins so far can be right any more."""


@runtime_checkable
class Task(Protocol):
    """What the framework needs of a task. Implementations are light: building one loads and generates nothing."""

    @property
    def name(self) -> str: ...

    def problems(self, split: Split) -> Sequence[Problem]:
        """The problems of one split, the same in every process; no problem is in two splits."""
        ...

    def verify(self, problem: Problem, completion: str) -> Verdict: ...

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]: ...

    def scores(self, problem: Problem, completion: str) -> Mapping[str, float]:
        """The benchmark's own scores, each in its own range, named ``part/quantity`` (``longproc/accuracy``)."""
        ...


@runtime_checkable
class VerifiesTogether(Protocol):
    """A task that judges a whole batch at once, in several processes for example."""

    def verify_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """The verdict on each completion, that of its problem beside it: the same as :meth:`Task.verify` gives."""
        ...


def split_of(key: str) -> Split:
    """The split of a generated problem by a hash of its key: 80% train, 10% validation, 10% test, whatever the seed."""
    bucket = int.from_bytes(blake2b(key.encode(), digest_size=8).digest(), "big") % 10
    return ("validation", "test")[bucket] if bucket < 2 else "train"


def distinct(draws: Iterable[T], key: Callable[[T], str], *, space: object, what: str) -> Iterator[T]:
    """The draws without those that repeat a key: a longer list begins with the shorter one.

    Raises:
        ValueError: when a thousand draws in a row bring nothing new; ``space`` and ``what`` are what it names.
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
