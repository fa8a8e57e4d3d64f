"""The lines of a written search: LongProc's, and the annotated ones that end each line with the state.

LongProc indents by depth and writes ``# Search Procedure`` above (its stored files put tags around it instead). The
annotated lines follow the published examples, one of each. Where no example exists the choice is ours: no indentation,
``Pick`` lines without a mark, ``Try`` lines marked ``|- ``, after a dropped operation the state is the one before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import combinations
from typing import Protocol, runtime_checkable

from contrastive_reasoning.tasks.countdown.game import MAX_RESULT


@runtime_checkable
class Wording(Protocol):
    """The lines of a search, without line breaks; ``level`` is LongProc's depth of indentation."""

    end: str
    """What stands between the last line and the trace back."""

    def opening(self, numbers: list[int], target: int) -> str: ...
    def pick(self, level: int, state: list[int], first: int, second: int, left: list[int]) -> str: ...
    def add(self, level: int, equation: str, state: list[int], target: int) -> str: ...
    def drop(self, level: int, equation: str, state: list[int]) -> str: ...
    def miss(self, level: int, equation: str, result: int, target: int) -> str: ...
    def found(self, level: int, equation: str, target: int) -> str: ...


class LongProcWording:
    """The text of LongProc's builder (arXiv:2501.05414)."""

    end = "\n\n"
    header = "# Search Procedure"

    def opening(self, numbers: list[int], target: int) -> str:
        return f"{self.header}\nInitial number set: {numbers}, target: {target}{_options(numbers)}"

    def pick(self, level: int, state: list[int], first: int, second: int, left: list[int]) -> str:
        return f"{' ' * level}|- Pick two numbers ({first}, {second}) (numbers left: {left}). Try possible operations."

    def add(self, level: int, equation: str, state: list[int], target: int) -> str:
        return (
            f"{' ' * level}|- Try {equation}. Add {state[0]} to the number set. "
            f"Current number set: {state}, target: {target}{_options(state)}"
        )

    def drop(self, level: int, equation: str, state: list[int]) -> str:
        return f"{' ' * level}|- Try {equation}"

    def miss(self, level: int, equation: str, result: int, target: int) -> str:
        return f"{' ' * level}|- Try {equation}. Evaluate {result} != {target}, drop this branch."

    def found(self, level: int, equation: str, target: int) -> str:
        return f"{' ' * level}|- Try {equation}. Evaluate {target} == {target}, target found!"


class AnnotatedWording:
    """The annotated lines: a ``Pick`` line carries the state before it, a ``Try`` line the state after it."""

    end = "\n</Search Procedure>\n\n"
    header = "<Search Procedure>"

    def opening(self, numbers: list[int], target: int) -> str:
        return f"{self.header}\nInitial number set: {numbers}, target: {target}"

    def pick(self, level: int, state: list[int], first: int, second: int, left: list[int]) -> str:
        return (
            f"Pick two numbers ({first}, {second}) (numbers left: {left}). Try possible operations. "
            f"### Current State: {state}"
        )

    def add(self, level: int, equation: str, state: list[int], target: int) -> str:
        return (
            f"|- Try {equation}. Add {state[0]} to the number set. "
            f"Current number set: {state}, target: {target}{_options(state)} ### Current State: {state}"
        )

    def drop(self, level: int, equation: str, state: list[int]) -> str:
        return f"|- Try {equation} ### Current State: {state}"

    def miss(self, level: int, equation: str, result: int, target: int) -> str:
        return f"|- Try {equation}. Evaluate {result} != {target}, drop this branch. ### Current State: [{result}]"

    def found(self, level: int, equation: str, target: int) -> str:
        return f"|- Try {equation}. Evaluate {target} == {target}, target! ### Current State: [{target}]"


LONGPROC = LongProcWording()
ANNOTATED = AnnotatedWording()
WORDINGS = {"longproc": LONGPROC, "annotated": ANNOTATED}


def wording_of(style: str) -> LongProcWording | AnnotatedWording:
    """The lines of a style that writes the search.

    Raises:
        ValueError: on any other style.
    """
    if style not in WORDINGS:
        raise ValueError(f"style must be one of {', '.join(WORDINGS)}, got {style!r}")
    return WORDINGS[style]


Attempt = tuple[int | None, str]
"""(result, equation), or (None, equation and why it is dropped)."""


def attempts(a: int, b: int) -> Iterator[Attempt]:
    """The operations ``+ - * /`` on two numbers ≥ 0, the larger named first."""
    if a < b:
        a, b = b, a
    for op, result in (("+", a + b), ("-", a - b), ("*", a * b)):
        yield _bounded(result, f"{a} {op} {b} = {result}")
    if b == 0:
        yield None, f"{a} / {b} (invalid operation). drop this branch."
    elif a % b == 0:
        yield _bounded(a // b, f"{a} / {b} = {a // b}")
    else:
        yield None, f"{a} / {b} = {a / b:.1f}. {a / b:.1f} is a decimal, drop this branch."


def closing(solution: Sequence[str]) -> str:
    """The trace back, last equation first, then the answer. More than three equations repeat ``The step before``."""
    names = ["Final step", *["The step before"] * (len(solution) - 2), "The first step"][: len(solution)]
    back = "\n".join([f"{name}: {equation}" for name, equation in zip(names, reversed(solution), strict=True)])
    block = "\n".join(solution)
    return (
        "Now we have found the target, let's trace back the solution:\n"
        f"{back}\n\nOutput the solution in the required format:\n<Solution>\n{block}\n</Solution>\n"
    )


def _bounded(result: int, equation: str) -> Attempt:
    if result < MAX_RESULT:
        return result, equation
    return None, f"{equation}. {result} exceeds the maximum intermediate result, drop this branch."


def _options(state: list[int]) -> str:
    if len(state) == 2:
        return ", just two numbers left."
    pairs = ", ".join([f"({a}, {b})" for a, b in combinations(state, 2)])
    return f". Options for choosing two numbers: [{pairs}]."
