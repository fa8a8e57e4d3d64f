"""Triples (state, action, goal) from Countdown's search traces, in the three published forms.

text  state = the trace before a line, action = that line, goal = a later line
V1    state = the problem's numbers, action = a visited state, goal = a state visited later
V2    state = a visited state, no action, goal = the problem's target, which is the same for all
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown.encoding import encode_state
from contrastive_reasoning.tasks.countdown.game import Move
from contrastive_reasoning.tasks.countdown.grammar import Equation, parse_equation
from contrastive_reasoning.tasks.countdown.search import SearchTree
from contrastive_reasoning.tasks.countdown.trace import WORDINGS
from contrastive_reasoning.tasks.countdown.wording import Wording
from contrastive_reasoning.tasks.hindsight import Triple, draw_future

Numbers = tuple[int, ...]
TextTriple = Triple[str, str, str]
_NUMBER_LIST = re.compile(r"\[(\d+(?:, \d+)*)\]")
ArrayTriple = Triple[Numbers, Numbers, Numbers]
TargetTriple = Triple[Numbers, None, int]


def text_triple(trace: str, *, style: str, discount: float, rng: random.Random) -> TextTriple:
    """One line of the search that is followed by another, and a later one; the header and the trace back are neither.

    ``state + action`` is the trace up to the action's end, so a critic may read the two as one text.

    Args:
        trace: a written search.
        style: in which it is written, ``longproc`` or ``annotated``.
        discount: of the later line.
        rng: the only source of chance.

    Raises:
        ValueError: on another style, or if the search has fewer than two lines.
    """
    header, *lines = trace.split(wording_of(style).end, 1)[0].splitlines(keepends=True)
    moment = _draw_moment(len(lines), rng)
    later = draw_future(moment, len(lines), discount=discount, rng=rng)
    return Triple(state=header + "".join(lines[:moment]), action=lines[moment].rstrip("\n"), goal=lines[later].strip())


def number_lists(line: str) -> list[Numbers]:
    """The sorted numbers of every list in brackets in a line of a trace: the state it writes, what a pick leaves."""
    return [tuple(sorted(int(number) for number in found.split(", "))) for found in _NUMBER_LIST.findall(line)]


def array_triple(tree: SearchTree, *, discount: float, rng: random.Random) -> ArrayTriple:
    """V1: the start, a state visited after it, and one visited later, whether or not under it.

    The search writes failed branches too, so "later" does not mean "reached from": with the start as the state every
    array of the trace is reachable, which is why V1 can ignore its action.

    Raises:
        ValueError: if fewer than two states were visited after the start.
    """
    moment = _draw_moment(len(tree.states) - 1, rng)
    later = draw_future(moment, len(tree.states) - 1, discount=discount, rng=rng)
    return Triple(state=tree.states[0], action=tree.states[moment + 1], goal=tree.states[later + 1])


def target_triple(tree: SearchTree, *, rng: random.Random) -> TargetTriple:
    """V2: a state visited after the start and before the end, failed branches included, with the final target.

    Raises:
        ValueError: if fewer than two states were visited after the start.
    """
    moment = _draw_moment(len(tree.states) - 1, rng)
    return Triple(state=tree.states[moment + 1], action=None, goal=tree.target)


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
            lines.append(_last_line(wording, 2 * depth + 1, move, target))
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
    moves = [_as_searched(equation, step.state) for equation, step in zip(equations, steps, strict=True) if equation]
    return [path_text(numbers, target, moves[: count + 1], style=style) for count in range(len(moves))]


def wording_of(style: str) -> Wording:
    """The line forms of a style that writes the search.

    Raises:
        ValueError: on any other style.
    """
    if style not in WORDINGS:
        raise ValueError(f"style must be one of {', '.join(WORDINGS)}, got {style!r}")
    return WORDINGS[style]


def array_row(tree: SearchTree, rng: random.Random) -> list[int]:
    """A V1 triple as 18 integers: start, action and goal; any later array is as good as another (γ = 1)."""
    triple = array_triple(tree, discount=1.0, rng=rng)
    return [*encode_state(triple.state), *encode_state(triple.action), *encode_state(triple.goal)]


def target_row(tree: SearchTree, rng: random.Random) -> list[int]:
    """A V2 triple as 7 integers: state and target."""
    triple = target_triple(tree, rng=rng)
    return [*encode_state(triple.state), triple.goal]


def _as_searched(equation: Equation, state: Numbers) -> Move:
    """A search names the larger operand first."""
    a, op, b, result = equation
    return Move(b, op, a, result, state) if op in "+*" and a < b else Move(a, op, b, result, state)


def _last_line(wording: Wording, level: int, move: Move, target: int) -> str:
    if move.result == target:
        return wording.found(level, move.spaced, target)
    return wording.miss(level, move.spaced, move.result, target)


def _draw_moment(moments: int, rng: random.Random) -> int:
    """Any moment that has a future."""
    if moments < 2:
        raise ValueError(f"a trace needs at least two moments to draw a triple, got {moments}")
    return rng.randrange(moments - 1)
