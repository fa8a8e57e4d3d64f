"""The line forms of a written search: LongProc's, and the annotated ones that end each line with the state.

LongProc indents by depth and writes ``# Search Procedure`` above (its stored files put tags around it instead). The
annotated forms follow the published examples, one of each; where no example exists the choice is ours: no indentation,
``Pick`` lines without a mark, ``Try`` lines marked ``|- ``, after a dropped operation the state is the one before it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from itertools import chain, combinations
from typing import Protocol, runtime_checkable


@runtime_checkable
class Wording(Protocol):
    """The lines of a search, without line breaks; ``level`` is LongProc's depth of indentation, ``target`` its text."""

    end: str
    """What stands between the last line and the trace back."""

    def opening(self, numbers: list[int], target: int | str) -> str: ...
    def pick(self, level: int, state: list[int], first: int, second: int, left: list[int]) -> str: ...
    def add(self, level: int, equation: str, state: list[int], target: int | str) -> str: ...
    def drop(self, level: int, equation: str, state: list[int]) -> str: ...
    def miss(self, level: int, equation: str, result: int, target: int | str) -> str: ...
    def found(self, level: int, equation: str, target: int | str) -> str: ...


class LongProcWording:
    """The text of LongProc's builder (arXiv:2501.05414)."""

    end = "\n\n"
    header = "# Search Procedure"

    def opening(self, numbers: list[int], target: int | str) -> str:
        return f"{self.header}\nInitial number set: {numbers}, target: {target}{_options(numbers)}"

    def pick(self, level: int, state: list[int], first: int, second: int, left: list[int]) -> str:
        return f"{' ' * level}|- Pick two numbers ({first}, {second}) (numbers left: {left}). Try possible operations."

    def add(self, level: int, equation: str, state: list[int], target: int | str) -> str:
        return (
            f"{' ' * level}|- Try {equation}. Add {state[0]} to the number set. "
            f"Current number set: {state}, target: {target}{_options(state)}"
        )

    def drop(self, level: int, equation: str, state: list[int]) -> str:
        return f"{' ' * level}|- Try {equation}"

    def miss(self, level: int, equation: str, result: int, target: int | str) -> str:
        return f"{' ' * level}|- Try {equation}. Evaluate {result} != {target}, drop this branch."

    def found(self, level: int, equation: str, target: int | str) -> str:
        return f"{' ' * level}|- Try {equation}. Evaluate {target} == {target}, target found!"


class AnnotatedWording:
    """The annotated lines: a ``Pick`` line carries the state before it, a ``Try`` line the state after it."""

    end = "\n</Search Procedure>\n\n"
    header = "<Search Procedure>"

    def opening(self, numbers: list[int], target: int | str) -> str:
        return f"{self.header}\nInitial number set: {numbers}, target: {target}"

    def pick(self, level: int, state: list[int], first: int, second: int, left: list[int]) -> str:
        return (
            f"Pick two numbers ({first}, {second}) (numbers left: {left}). Try possible operations. "
            f"### Current State: {state}"
        )

    def add(self, level: int, equation: str, state: list[int], target: int | str) -> str:
        return (
            f"|- Try {equation}. Add {state[0]} to the number set. "
            f"Current number set: {state}, target: {target}{_options(state)} ### Current State: {state}"
        )

    def drop(self, level: int, equation: str, state: list[int]) -> str:
        return f"|- Try {equation} ### Current State: {state}"

    def miss(self, level: int, equation: str, result: int, target: int | str) -> str:
        return f"|- Try {equation}. Evaluate {result} != {target}, drop this branch. ### Current State: [{result}]"

    def found(self, level: int, equation: str, target: int | str) -> str:
        return f"|- Try {equation}. Evaluate {target} == {target}, target! ### Current State: [{target}]"


LONGPROC = LongProcWording()
ANNOTATED = AnnotatedWording()


def _options(state: list[int]) -> str:
    if len(state) == 2:
        return ", just two numbers left."
    places, template = _pairs(len(state))
    return template % tuple([state[k] for k in places])


@lru_cache(maxsize=8)
def _pairs(count: int) -> tuple[tuple[int, ...], str]:
    """Positions of all pairs in list order, and the sentence they fill: many times faster than printing the pairs."""
    pairs = list(combinations(range(count), 2))
    options = ", ".join(["(%s, %s)"] * len(pairs))
    return tuple(chain(*pairs)), f". Options for choosing two numbers: [{options}]."


def closing(solution: Sequence[str]) -> str:
    """The trace back, last equation first, then the answer. More than three equations repeat ``The step before``."""
    block = "\n".join(solution)
    return _closing(len(solution)) % (*reversed(solution), block)


@lru_cache(maxsize=8)
def _closing(count: int) -> str:
    names = ["Final step", *["The step before"] * (count - 2), "The first step"][:count]
    back = "\n".join([f"{name}: %s" for name in names])
    return (
        "Now we have found the target, let's trace back the solution:\n"
        f"{back}\n\nOutput the solution in the required format:\n<Solution>\n%s\n</Solution>\n"
    )
