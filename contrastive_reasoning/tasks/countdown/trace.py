"""Written searches: LongProc's text byte for byte, two annotated variants, the bare solution, and a shuffled order.

LongProc's search (arXiv:2501.05414) takes pairs in list order and ``+ - * /`` on each pair; it indents by depth.
``shuffled_trace`` draws both orders anew in every state. The rest is the same: depth first, every result legal or
dropped with its reason, and a stop at the first solution.

The annotated lines end with the state and follow the published examples, one of each kind. Where no example exists, the
choice is ours: no indentation, ``Pick`` lines without a mark, and the previous state after a dropped operation. The
released lines follow the prompt in the critic paper's later code: they are indented, and a dropped operation ends with
the state that it would have led to, including its decimal. Our choices there: a result above the limit is shown
likewise, and an operation without a result shows the previous state.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal, NamedTuple, TypeVar, get_args

from contrastive_reasoning.ranges import one_of
from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown.game import MAX_RESULT, Move, checked_numbers, pair_indices
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.search import search, unsolvable
from contrastive_reasoning.tasks.countdown.verifier import SIGNS, parse_equation

T = TypeVar("T")
Style = Literal["longproc", "annotated", "released", "direct"]
STYLES: tuple[Style, ...] = get_args(Style)


class Trace(NamedTuple):
    """A written search that ends in a solution."""

    text: str
    solution: tuple[str, ...]
    """Its equations in order: ``("21 + 16 = 37", …)``."""


@dataclass(frozen=True, kw_only=True)
class Wording:
    """The lines of a search as templates; ``options`` are the pairs to choose from in ``state``."""

    header: str
    end: str
    """The text between the last line of the search and the trace back."""
    opening: str
    pick: str
    add: str
    drop: str
    """``state`` is the state before the operation, ``dropped`` the state that it would have led to."""
    miss: str
    found: str
    margin: int
    """Indentation of ``Pick`` lines, and of ``Try`` lines on the last two numbers, relative to their level. Other
    ``Try`` lines are indented by two. Each deeper level adds two."""


WORDINGS = {
    "longproc": Wording(
        header="# Search Procedure",  # LongProc's stored files put tags around the search instead
        end="\n\n",
        opening="Initial number set: {state}, target: {target}{options}",
        pick="{indent}|- Pick two numbers ({first}, {second}) (numbers left: {left}). Try possible operations.",
        add="{indent}|- Try {equation}. Add {result} to the number set. "
        "Current number set: {state}, target: {target}{options}",
        drop="{indent}|- Try {equation}",
        miss="{indent}|- Try {equation}. Evaluate {result} != {target}, drop this branch.",
        found="{indent}|- Try {equation}. Evaluate {target} == {target}, target found!",
        margin=1,
    ),
    "annotated": Wording(
        header="<Search Procedure>",
        end="\n</Search Procedure>\n\n",
        opening="Initial number set: {state}, target: {target}",
        pick="Pick two numbers ({first}, {second}) (numbers left: {left}). Try possible operations. "
        "### Current State: {state}",
        add="|- Try {equation}. Add {result} to the number set. "
        "Current number set: {state}, target: {target}{options} ### Current State: {state}",
        drop="|- Try {equation} ### Current State: {state}",
        miss="|- Try {equation}. Evaluate {result} != {target}, drop this branch. ### Current State: [{result}]",
        found="|- Try {equation}. Evaluate {target} == {target}, target! ### Current State: [{target}]",
        margin=0,
    ),
    "released": Wording(
        header="<Search Procedure>",
        end="\n</Search Procedure>\n\n",
        opening="Initial number set: {state}, target: {target}{options}",
        pick="{indent}|- Pick two numbers ({first}, {second}) (numbers left: {left}). Try possible operations. "
        "### Current State: {state}",
        add="{indent}|- Try {equation}. Add {result} to the number set. "
        "Current number set: {state}, target: {target}{options} ### Current State: {state}",
        drop="{indent}|- Try {equation} ### Current State: {dropped}",
        miss="{indent}|- Try {equation}. Evaluate {result} != {target}, drop this branch. "
        "### Current State: [{result}]",
        found="{indent}|- Try {equation}. Evaluate {target} == {target}, target found! ### Current State: [{target}]",
        margin=0,
    ),
}


def wording_of(style: str) -> Wording:
    """The templates of a style that writes the search; raises a ValueError for any other style."""
    one_of(WORDINGS, style=style)
    return WORDINGS[style]


def search_trace(numbers: Sequence[int], target: int, *, style: str = "longproc") -> Trace:
    """The search for one problem as text.

    Args:
        numbers: two or more numbers ≥ 0 in the order shown; LongProc's problems have four.
        style: ``longproc`` (the text of LongProc's builder), ``annotated`` (every line ends with the state),
            ``released`` (the same, but indented), ``direct`` (the solution's moves joined by ``;``).

    Raises:
        ValueError: if the style is unknown, there are fewer than two numbers, or the target cannot be reached.
    """
    one_of(STYLES, style=style)
    if style != "direct":
        return _write_trace(numbers, target, wording=wording_of(style), rng=None)
    _check_solvable(numbers, target)
    moves = search(numbers, target).solution_moves()
    return Trace(";".join([move.equation for move in moves]), tuple([move.spaced for move in moves]))


def shuffled_trace(numbers: Sequence[int], target: int, *, style: str, rng: random.Random) -> Trace:
    """The search in a style that writes it; ``rng`` shuffles the pairs of each state and the operations of each pair.

    Raises:
        ValueError: if the style does not write the search, there are fewer than two numbers, or the target cannot be
            reached.
    """
    return _write_trace(numbers, target, wording=wording_of(style), rng=rng)


def path_text(numbers: Sequence[int], target: int, moves: Sequence[Move], *, style: str) -> str:
    """The trace of a search that made exactly these moves without backtracking, up to the last of them.

    There are one or more ``moves``, each from the state after the previous one.

    Raises:
        ValueError: if the style does not write the search.
    """
    writer, state = _SearchWriter(target=target, wording=wording_of(style), rng=None), list(numbers)
    writer.open(state)
    for depth, move in enumerate(moves):
        first, second = sorted((move.a, move.b), key=state.index)  # a pair is written in list order
        left = list(move.state[1:])
        writer.pick(state, first, second, left, level=2 * depth)
        writer.result(move.result, move.spaced, left, level=2 * depth)
        if not left:
            break
        state = [move.result, *left]
    return "\n".join(writer.lines)


def step_texts(problem: Problem, completion: str, steps: Sequence[Step], *, style: str) -> list[str]:
    """The text up to each step in the form that critics are trained on: a trace that begins with numbers and target.

    A written search already has this form, so its prefixes are returned. Bare moves, the ``direct`` format, are
    rewritten as a search that made exactly these moves.

    Args:
        problem: a ``direct`` one has ``numbers`` and ``target`` in its fields.
        steps: the legal steps of the completion, starting with the first one.
        style: the style for rewriting bare moves; it must be one that writes the search.

    Raises:
        ValueError: if bare moves are rewritten in a style that does not write the search.
    """
    text = completion.translate(SIGNS)  # the same translation as in ``parse_steps``
    equations = [parse_equation(text[step.start : step.end]) for step in steps]
    if problem.fields.get("style") != "direct" or None in equations:
        return [completion[: step.end] for step in steps]
    moves = []
    for equation, step in zip(filter(None, equations), steps, strict=True):
        a, op, b, result = equation
        if op in "+*" and a < b:  # a search writes the larger operand first
            a, b = b, a
        moves.append(Move(a, op, b, result, step.state))
    numbers, target = problem.fields["numbers"], problem.fields["target"]
    return [path_text(numbers, target, moves[: count + 1], style=style) for count in range(len(moves))]


def _check_solvable(numbers: Sequence[int], target: int) -> None:
    """Raises a ValueError for problems without a trace; searching five or more numbers would write a million lines."""
    if len(checked_numbers(numbers)) < 2:
        raise ValueError(f"a trace needs two or more numbers, got {list(numbers)}")
    if not reachable(numbers, target):
        raise ValueError(unsolvable(numbers, target))


def _write_trace(numbers: Sequence[int], target: int, *, wording: Wording, rng: random.Random | None) -> Trace:
    """Writes the search, then the trace back with the last equation first, then the answer."""
    _check_solvable(numbers, target)
    writer = _SearchWriter(target=target, wording=wording, rng=rng)
    writer.open(list(numbers))
    writer.explore(list(numbers), 0)
    solution = writer.solution
    names = ["Final step", *["The step before"] * (len(solution) - 2), "The first step"][: len(solution)]
    back = "\n".join([f"{name}: {equation}" for name, equation in zip(names, reversed(solution), strict=True)])
    block = "\n".join(solution)
    closing = (
        "Now we have found the target, let's trace back the solution:\n"
        f"{back}\n\nOutput the solution in the required format:\n<Solution>\n{block}\n</Solution>\n"
    )
    return Trace("\n".join(writer.lines) + wording.end + closing, tuple(solution))


@dataclass(kw_only=True)
class _SearchWriter:
    """The lines written so far, and the equations on the path to the current state.

    For two numbers there is no ``Pick`` line. Their results are compared with the target, one level less deep.
    """

    target: int
    wording: Wording
    rng: random.Random | None
    """Draws the order of pairs and operations; None: LongProc's."""
    lines: list[str] = field(default_factory=list)
    solution: list[str] = field(default_factory=list)

    def explore(self, state: list[int], level: int) -> bool:
        """Writes the search under ``state``; returns True as soon as the target is found."""
        for i, j, rest in self._in_order(pair_indices(len(state))):
            left = [state[k] for k in rest]
            self.pick(state, state[i], state[j], left, level=level)
            for result, equation, value in self._in_order(attempts(state[i], state[j])):
                if result is None:
                    indent = level + (2 if left else self.wording.margin)
                    dropped = [value, *map(str, left)] if value else map(str, state)
                    shown = f"[{', '.join(dropped)}]"
                    self._write(self.wording.drop, indent, equation=equation, state=state, dropped=shown)
                    continue
                self.solution.append(equation)
                self.result(result, equation, left, level=level)
                if self.explore([result, *left], level + 2) if left else result == self.target:
                    return True
                self.solution.pop()
        return False

    def open(self, state: list[int]) -> None:
        self.lines.append(self.wording.header)
        self._write(self.wording.opening, 0, state=state, options=_options(state))

    def pick(self, state: list[int], first: int, second: int, left: list[int], *, level: int) -> None:
        if left:
            indent = level + self.wording.margin
            self._write(self.wording.pick, indent, state=state, first=first, second=second, left=left)

    def result(self, result: int, equation: str, left: list[int], *, level: int) -> None:
        """Writes a legal result: the state that it leads to, or, for the last number, whether it is the target."""
        if left:
            state = [result, *left]
            options = _options(state)
            self._write(self.wording.add, level + 2, equation=equation, result=result, state=state, options=options)
        else:
            template = self.wording.found if result == self.target else self.wording.miss
            self._write(template, level + self.wording.margin, equation=equation, result=result)

    def _write(self, template: str, indent: int, **values: object) -> None:
        self.lines.append(template.format(indent=" " * indent, target=self.target, **values))

    def _in_order(self, items: Iterable[T]) -> Iterable[T]:
        if self.rng is None:
            return items
        drawn = list(items)
        self.rng.shuffle(drawn)
        return drawn


class Attempt(NamedTuple):
    """An operation on two numbers."""

    result: int | None
    """None if the rules forbid it."""
    text: str
    """The equation, followed by the reason if it is dropped."""
    value: str
    """The result as written, also for a forbidden one; empty if there is none."""


def attempts(a: int, b: int) -> Iterator[Attempt]:
    """Yields the operations ``+ - * /`` on two numbers ≥ 0, the larger one first."""
    if a < b:
        a, b = b, a
    exact = [("+", a + b), ("-", a - b), ("*", a * b)]
    if b and a % b == 0:
        exact.append(("/", a // b))
    for op, result in exact:
        equation = f"{a} {op} {b} = {result}"
        if result < MAX_RESULT:
            yield Attempt(result, equation, str(result))
        else:
            why = f"{result} exceeds the maximum intermediate result, drop this branch."
            yield Attempt(None, f"{equation}. {why}", str(result))
    if b == 0:
        yield Attempt(None, f"{a} / {b} (invalid operation). drop this branch.", "")
    elif a % b:
        quotient = f"{a / b:.1f}"
        yield Attempt(None, f"{a} / {b} = {quotient}. {quotient} is a decimal, drop this branch.", quotient)


def _options(state: list[int]) -> str:
    if len(state) == 2:
        return ", just two numbers left."
    pairs = ", ".join([f"({a}, {b})" for a, b in combinations(state, 2)])
    return f". Options for choosing two numbers: [{pairs}]."
