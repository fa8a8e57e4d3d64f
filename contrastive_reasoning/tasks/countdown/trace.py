"""Written searches: LongProc's text byte for byte, the annotated variant, the bare solution, or in a drawn order.

LongProc's search takes pairs in list order and ``+ - * /`` on each. ``shuffled_trace`` draws both orders anew in every
state; all else is the same: depth first, every result legal or dropped with its reason, an end at the first solution.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar, get_args

from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown.game import Move, checked_numbers, pair_indices
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.search import search, unsolvable
from contrastive_reasoning.tasks.countdown.verifier import Equation, parse_equation
from contrastive_reasoning.tasks.countdown.wording import Wording, attempts, closing, wording_of

T = TypeVar("T")
Style = Literal["longproc", "annotated", "direct"]
STYLES: tuple[Style, ...] = get_args(Style)


class Trace(NamedTuple):
    """A written search that ends in a solution."""

    text: str
    solution: tuple[str, ...]
    """Its equations in order: ``("21 + 16 = 37", …)``."""


def search_trace(numbers: Sequence[int], target: int, *, style: str = "longproc") -> Trace:
    """The search for one problem as text.

    Args:
        numbers: two or more numbers ≥ 0 in the order they are shown; LongProc's problems have four.
        target: the number to reach.
        style: ``longproc`` (the text of LongProc's builder), ``annotated`` (every line ends with the state),
            ``direct`` (the solution's moves joined by ``;``).

    Raises:
        ValueError: on an unknown style, fewer than two numbers, or a target that cannot be reached.
    """
    if style not in STYLES:
        raise ValueError(f"style must be one of {', '.join(STYLES)}, got {style!r}")
    if style != "direct":
        return _written(numbers, target, wording=wording_of(style), rng=None)
    _check_solvable(numbers, target)
    moves = search(numbers, target).solution_moves()
    return Trace(";".join([move.equation for move in moves]), tuple([move.spaced for move in moves]))


def shuffled_trace(numbers: Sequence[int], target: int, *, style: str, rng: random.Random) -> Trace:
    """The search for one problem as text, its pairs and operations in an order drawn for each state.

    Args:
        numbers: two or more numbers ≥ 0 in the order they are shown.
        target: the number to reach.
        style: ``longproc`` or ``annotated``.
        rng: shuffles the pairs of each state and the operations of each pair.

    Raises:
        ValueError: on another style, fewer than two numbers, or a target that cannot be reached.
    """
    return _written(numbers, target, wording=wording_of(style), rng=rng)


def path_text(numbers: Sequence[int], target: int, moves: Sequence[Move], *, style: str) -> str:
    """The trace of a search that went straight down these moves and has just written the last of them.

    Args:
        numbers: the start.
        target: of the problem.
        moves: at least one, each from the state before it.
        style: ``longproc`` or ``annotated``.

    Raises:
        ValueError: on another style.
    """
    wording, state = wording_of(style), list(numbers)
    lines = [wording.opening(state, target)]
    for depth, move in enumerate(moves):
        child = list(move.state)
        if len(child) == 1:  # two numbers are not picked from, their results are compared with the target
            lines.append(_last_line(wording, 2 * depth + 1, move.spaced, move.result, target))
            break
        first, second = sorted((move.a, move.b), key=state.index)  # a pair is named in the list's order
        lines.append(wording.pick(2 * depth + 1, state, first, second, child[1:]))
        lines.append(wording.add(2 * depth + 2, move.spaced, child, target))
        state = child
    return "\n".join(lines)


def step_texts(problem: Problem, completion: str, steps: Sequence[Step], *, style: str) -> list[str]:
    """The text up to each step in the form a critic is trained on: a trace that begins with its numbers and target.

    A written search is such a trace: its prefixes. Bare moves, the ``direct`` format, are written as the search that
    went straight down them.

    Args:
        problem: a ``direct`` one has ``numbers`` and ``target`` in its fields.
        completion: where the steps were found.
        steps: the legal steps of the completion from its first on.
        style: in which bare moves are written, ``longproc`` or ``annotated``.

    Raises:
        ValueError: on another style.
    """
    equations = [parse_equation(completion[step.start : step.end]) for step in steps]
    if problem.fields.get("style") != "direct" or None in equations:
        return [completion[: step.end] for step in steps]
    numbers, target = problem.fields["numbers"], problem.fields["target"]
    moves = [_larger_first(equation, step.state) for equation, step in zip(equations, steps, strict=True) if equation]
    return [path_text(numbers, target, moves[: count + 1], style=style) for count in range(len(moves))]


def _check_solvable(numbers: Sequence[int], target: int) -> None:
    """Refuses problems without a trace; a search of five or more numbers would write a million lines first."""
    if len(checked_numbers(numbers)) < 2:
        raise ValueError(f"a trace needs two or more numbers, got {list(numbers)}")
    if not reachable(numbers, target):
        raise ValueError(unsolvable(numbers, target))


def _written(numbers: Sequence[int], target: int, *, wording: Wording, rng: random.Random | None) -> Trace:
    _check_solvable(numbers, target)
    writer = _SearchWriter(target=target, wording=wording, rng=rng, lines=[wording.opening(list(numbers), target)])
    writer.explore(list(numbers), 0)
    return Trace("\n".join(writer.lines) + wording.end + closing(writer.solution), tuple(writer.solution))


@dataclass(kw_only=True)
class _SearchWriter:
    """The lines written so far, and the equations on the way to the state that is explored."""

    target: int
    wording: Wording
    rng: random.Random | None
    """Draws the order of pairs and operations; None: LongProc's."""
    lines: list[str]
    solution: list[str] = field(default_factory=list)

    def explore(self, state: list[int], level: int) -> bool:
        """Writes the search under ``state``; returns True as soon as the target is found."""
        for i, j, rest in self._in_order(pair_indices(len(state))):
            left = [state[k] for k in rest]
            if left:  # two numbers are not picked from, their results are compared with the target
                self.lines.append(self.wording.pick(level + 1, state, state[i], state[j], left))
            below = level + 2 if left else level + 1
            for result, equation in self._in_order(attempts(state[i], state[j])):
                if self._attempt(result, equation, state, left, below):
                    return True
        return False

    def _attempt(self, result: int | None, equation: str, state: list[int], left: list[int], level: int) -> bool:
        """Writes one operation, and what comes under it."""
        if result is None:
            self.lines.append(self.wording.drop(level, equation, state))
            return False
        self.solution.append(equation)
        if left:
            child = [result, *left]
            self.lines.append(self.wording.add(level, equation, child, self.target))
            found = self.explore(child, level)
        else:
            self.lines.append(_last_line(self.wording, level, equation, result, self.target))
            found = result == self.target
        if not found:
            self.solution.pop()
        return found

    def _in_order(self, items: Iterable[T]) -> Iterable[T]:
        if self.rng is None:
            return items
        drawn = list(items)
        self.rng.shuffle(drawn)
        return drawn


def _last_line(wording: Wording, level: int, equation: str, result: int, target: int) -> str:
    if result == target:
        return wording.found(level, equation, target)
    return wording.miss(level, equation, result, target)


def _larger_first(equation: Equation, state: tuple[int, ...]) -> Move:
    """The move as a search writes it: the larger operand first."""
    a, op, b, result = equation
    return Move(b, op, a, result, state) if op in "+*" and a < b else Move(a, op, b, result, state)
