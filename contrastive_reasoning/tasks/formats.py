r"""Formats convert a row of a problem set to a problem, one class for each form in which sets are published.

Formats are named by what they read, not by the sets that use them. The instruction to reason in steps and to box the
answer occurs exactly once in a prompt (Eq. 13 and Table 10 of CLIPO), even if the question already contains it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from contrastive_reasoning.tasks.answer.extract import extract
from contrastive_reasoning.tasks.base import ChatPrompt, Message, Problem, make_tuples
from contrastive_reasoning.tasks.rows import BadRow, Format, MissingColumn, Row, as_text, text_at, value_at

ROLES = ("system", "user", "assistant")
_THOUSANDS = re.compile(r"(?<=\d),(?=\d{3}(?!\d))")
_PUBLISHED = re.compile(
    r"Let['’]s think step by step and output the final answer (\(eg,[A-Z,. ]{1,80}\) )?within \\boxed\{\}\.?"
)
"""The published wordings of the instruction, with and without the letters of a multiple choice."""
_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.]*)\}")
"""A column name in braces. Doubled braces stand for single braces of the text. ``\\boxed{}`` is unchanged."""
_LATEX_N = "abla|atural|e|earrow|eg|eq|ewline|exists|i|mid|ot|otin|parallel|u|ull|warrow|leq|geq|cong|sim|subseteq"
_ESCAPED_LINE_END = re.compile(rf"\\n(?!(?:{_LATEX_N})(?![A-Za-z]))")
r"""A backslash and an n that do not begin a LaTeX command such as ``\neq``: a line end was intended."""


@dataclass(frozen=True, kw_only=True)
class PlainAnswer:
    """A question and its answer in the named columns. The gold answer is kept as it is; numbers become text."""

    question: str
    answer: str
    instruction: str

    def __call__(self, row: Row, *, id: str) -> Problem:
        prompt = with_instruction(text_at(row, self.question), self.instruction)
        return Problem(id=id, prompt=prompt, answer=text_at(row, self.answer))


class WorkedAnswer(PlainAnswer):
    r"""A worked answer that ends with its result after four hashes, as in GSM8K: ``… so 48+24 = 72 in all.\n#### 72``.

    The gold answer is the text after the last mark, without thousands separators.
    """

    def __call__(self, row: Row, *, id: str) -> Problem:
        problem = super().__call__(row, id=id)
        return replace(problem, answer=result_of(problem.answer))


@dataclass(frozen=True, kw_only=True)
class BoxedSolution:
    r"""A whole solution in LaTeX with its answer in a box, as in MATH: ``… so it is $\boxed{\frac{1}{2}}$.``

    The gold answer is the content of the last box; earlier boxes hold the same answer or an intermediate step.
    """

    question: str
    solution: str
    instruction: str

    def __call__(self, row: Row, *, id: str) -> Problem:
        prompt = with_instruction(text_at(row, self.question), self.instruction)
        return Problem(id=id, prompt=prompt, answer=answer_in(text_at(row, self.solution)))


@dataclass(frozen=True, kw_only=True)
class ChatMessages:
    """Rows for chat trainers: the question is the only user message, the gold answer is in a nested column.

    The CLIPO files have this form. If the gold answer is a whole solution, only the content of its last box is kept.
    """

    messages: str
    answer: str
    instruction: str

    def __call__(self, row: Row, *, id: str) -> Problem:
        messages, roles = _messages_in(row, self.messages)
        if roles != ["user"]:  # a system message or an earlier turn would be lost
            raise BadRow(f"the messages must be one user's, got {', '.join(map(str, roles)) or 'none'}")
        question = as_text(messages[0].get("content"), "the message")
        return Problem(id=id, prompt=with_instruction(question, self.instruction), answer=_gold_at(row, self.answer))


@dataclass(frozen=True, kw_only=True)
class Conversation:
    """Rows whose prompt is a conversation, kept as it is: the parquet files of verl, and similar ones.

    verl's documented columns (its "Prepare Data" page): ``data_source``, ``prompt`` = [{role, content}, …],
    ``ability``, ``reward_model`` = {style, ground_truth}, ``extra_info`` = {split, index, …}. The policy receives every
    message, with no instruction added. If the gold answer is a whole solution, only the content of its last box is
    kept.
    """

    messages: str
    answer: str
    keep: Sequence[str]
    """Columns that become fields of the problem, if the row has them."""

    def __post_init__(self) -> None:
        make_tuples(self, "keep")

    def __call__(self, row: Row, *, id: str) -> Problem:
        answer = _gold_at(row, self.answer)
        messages, roles = _messages_in(row, self.messages)
        if unknown := [role for role in roles if role not in ROLES]:
            raise BadRow(f"the role of a message must be one of {', '.join(ROLES)}, got {unknown[0]!r}")
        if roles[-1:] != ["user"]:
            raise BadRow(f"the last message must be the user's, got {', '.join(map(str, roles)) or 'none'}")
        return Problem(
            id=id,
            prompt=ChatPrompt([Message(one["role"], as_text(one.get("content"), "a message")) for one in messages]),
            answer=answer,
            fields={name: row[name] for name in self.keep if name in row},
        )


@dataclass(frozen=True, kw_only=True)
class RowTemplate:
    """A user-defined prompt template, filled with the columns of a row: ``"How many letters has {word}?"``.

    The whole row becomes the fields of the problem.
    """

    prompt: str
    """The template; a nested column is given by its dotted path."""
    answer: str | None
    """Column of the gold answer. None: there is none, and the problem's answer is empty."""
    id: str | None
    """Column that identifies a row; its values must be distinct. None: the row's place in the file identifies it."""

    def __post_init__(self) -> None:
        if not any(match[1] for match in _PLACE.finditer(self.prompt)):
            raise ValueError(
                f"format.prompt must name a column in braces, as in 'Add up: {{numbers}}', got {self.prompt!r}"
            )
        _refuse_escaped_line_end("format.prompt", self.prompt)

    def __call__(self, row: Row, *, id: str) -> Problem:
        if self.id is not None:
            id = f"{id.rpartition('/')[0]}/{text_at(row, self.id)}"
        return Problem(
            id=id,
            prompt=_PLACE.sub(lambda match: text_at(row, match[1]) if match[1] else match[0][0], self.prompt),
            answer="" if self.answer is None else text_at(row, self.answer),
            fields=row,
        )


@dataclass(frozen=True, kw_only=True)
class FirstFitting:
    """Uses the first of several formats whose columns are all in the row.

    With it, one task can read a set from the hub as well as from files in another format.
    """

    formats: Mapping[str, Format]
    """Formats by name; the names are free."""

    def __post_init__(self) -> None:
        if not self.formats:
            raise ValueError("formats must name at least one format")

    # the generated one raises for a dict, and the caches of ``problem_set`` hash a task with its format
    def __hash__(self) -> int:
        return hash(tuple(self.formats.items()))

    def __call__(self, row: Row, *, id: str) -> Problem:
        missing: list[str] = []
        for format in self.formats.values():
            try:
                return format(row, id=id)
            except MissingColumn as error:
                missing.append(error.column)
        raise MissingColumn(" or ".join(missing), row)


def with_instruction(question: str, instruction: str) -> str:
    """Appends the instruction on a new line, unless it is empty or the question already contains an instruction.

    Raises:
        ValueError: if the instruction contains a backslash and an n instead of a line end.
    """
    _refuse_escaped_line_end("format.instruction", instruction)
    asked = not instruction or instruction in question or _PUBLISHED.search(question)
    return question if asked else f"{question}\n{instruction}"


def without_instruction(prompt: str) -> str:
    """Removes a published instruction from a prompt; an instruction in other words stays."""
    return _PUBLISHED.sub("", prompt).strip()


def answer_in(solution: str) -> str:
    """Returns the content of the last box of a solution, read as in a completion; raises BadRow if there is none."""
    found = extract(solution)
    if found.answer is None or not found.boxed:
        raise BadRow(f"no answer in the solution: {found.reason if found.boxed else 'no box'}")
    return found.answer


def result_of(worked: str) -> str:
    r"""Returns ``1234`` for ``… = 1,234\n#### 1,234``; raises BadRow if there is no mark, or nothing after it."""
    _, mark, result = worked.rpartition("####")
    answer = _THOUSANDS.sub("", result.strip())
    if not mark or not answer:
        raise BadRow("the worked answer has no result after ####")
    return answer


def _refuse_escaped_line_end(name: str, text: str) -> None:
    if _ESCAPED_LINE_END.search(text):
        raise ValueError(
            rf"{name} holds a backslash and an n, which no model reads as a line end: write a real one "
            rf"(\n in double quotes in YAML, $'…\n…' in a shell), got {text!r}"
        )


def _gold_at(row: Row, column: str) -> str:
    """Returns the gold answer of a column, which may hold a whole solution."""
    answer = text_at(row, column)
    return answer_in(answer) if r"\boxed" in answer else answer


def _messages_in(row: Row, column: str) -> tuple[Sequence[Mapping[str, Any]], list[Any]]:
    """Returns the messages of a column, and their roles."""
    messages = value_at(row, column)
    if not isinstance(messages, list | tuple) or not all(isinstance(message, dict) for message in messages):
        raise BadRow("the messages are not a list of {role, content}")
    return messages, [message.get("role") for message in messages]
