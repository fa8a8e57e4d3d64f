"""Searches in a drawn order: readable by the same parser, judged right, and LongProc's own text where the order is."""

from __future__ import annotations

import random
from typing import Any

import pytest

from contrastive_reasoning.tasks.countdown import (
    CountdownProblem,
    apply,
    parse_steps,
    reachable,
    search_trace,
    shuffled_trace,
    verify,
)
from contrastive_reasoning.tasks.countdown.grammar import parse_equation

TWO_NUMBERS = """\
# Search Procedure
Initial number set: [3, 8], target: 5, just two numbers left.
 |- Try 8 / 3 = 2.7. 2.7 is a decimal, drop this branch.
 |- Try 8 * 3 = 24. Evaluate 24 != 5, drop this branch.
 |- Try 8 - 3 = 5. Evaluate 5 == 5, target found!

Now we have found the target, let's trace back the solution:
Final step: 8 - 3 = 5

Output the solution in the required format:
<Solution>
8 - 3 = 5
</Solution>
"""


class ListOrder(random.Random):
    """Leaves every order as it is."""

    def shuffle(self, x: Any) -> None:
        pass


class Backwards(random.Random):
    def shuffle(self, x: Any) -> None:
        x.reverse()


def problems(count: int, *, seed: int, style: str = "longproc") -> list[CountdownProblem]:
    """Solvable ones of two, three and four numbers, zeros, equal and large numbers among them."""
    rng, found = random.Random(seed), []
    while len(found) < count:
        numbers = [rng.choice([0, 1, 2, 5, 14, 33, 60, 700, 2500, *range(1, 13)]) for _ in range(2 + len(found) % 3)]
        target = rng.randint(0, 50)
        if reachable(numbers, target):
            found.append(CountdownProblem(numbers, target, style=style))
    return found


def slow_states(numbers: tuple[int, ...], text: str) -> list[list[int]]:
    """The numbers after each legal Try line, sorted, by LongProc's indentation: two blanks more for each move made."""
    path, states = [numbers], []
    for line in text.split("\n\n")[0].split("\n")[2:]:
        level = len(line) - len(line.lstrip(" "))
        if "Pick" in line or "is a decimal" in line or "exceeds" in line or "invalid" in line:
            continue
        equation = parse_equation(line.split("Try ")[1].split(". ")[0])
        assert equation is not None
        del path[level // 2 if "Add" in line else (level + 1) // 2 :]
        left = list(path[-1])
        left.remove(equation.a)
        left.remove(equation.b)
        assert apply(equation.op, equation.a, equation.b) == equation.result
        path.append((equation.result, *left))
        states.append(sorted(path[-1]))
    return states


def test_text_by_hand() -> None:
    assert shuffled_trace((3, 8), 5, style="longproc", rng=Backwards()).text == TWO_NUMBERS


@pytest.mark.parametrize("style", ["longproc", "annotated"])
def test_the_list_order_is_the_fixed_search(style: str) -> None:
    for problem in problems(60, seed=1):
        drawn = shuffled_trace(problem.numbers, problem.target, style=style, rng=ListOrder())
        assert drawn == search_trace(problem.numbers, problem.target, style=style)


@pytest.mark.parametrize("style", ["longproc", "annotated"])
def test_drawn_searches_are_read_and_right(style: str) -> None:
    rng = random.Random(2)
    for problem in problems(90, seed=3, style=style):
        trace = shuffled_trace(problem.numbers, problem.target, style=style, rng=rng)
        steps = parse_steps(problem, trace.text)
        assert all(step.legal for step in steps)
        assert steps[-1].state == (problem.target,)
        assert verify(problem, trace.text).correct, trace.text
        if style == "longproc":
            assert [sorted(step.state) for step in steps] == slow_states(problem.numbers, trace.text)


def test_no_line_is_lost_or_said_twice() -> None:
    """Under a first move that was given up stand the four operations on the two numbers left, each once."""
    rng = random.Random(6)
    for problem in [problem for problem in problems(60, seed=7) if len(problem.numbers) == 3]:
        text = shuffled_trace(problem.numbers, problem.target, style="longproc", rng=rng).text
        blocks = text.split("\n\n")[0].split("\n  |- ")[1:]
        tried = [block.split("\n")[1:] for block in blocks[:-1] if "Add" in block]
        assert all(len([line for line in block if line.startswith("   |- ")]) == 4 for block in tried)
        assert all(len(set(block)) == len(block) for block in tried)


def test_every_first_move_comes_first_equally_often() -> None:
    rng, counts = random.Random(4), dict.fromkeys(["+", "-", "*", "/"], 0)
    pairs: dict[str, int] = {}
    for _ in range(1200):
        lines = shuffled_trace((12, 6, 3), 21, style="longproc", rng=rng).text.split("\n")
        counts[lines[3].split("Try ")[1].split(" ")[1]] += 1
        pairs[lines[2].split("(")[1]] = pairs.get(lines[2].split("(")[1], 0) + 1
    assert len(pairs) == 3
    assert all(abs(count - 300) < 75 for count in counts.values())  # five standard deviations
    assert all(abs(count - 400) < 82 for count in pairs.values())


def test_the_same_draws_give_the_same_search() -> None:
    first, again, other = (
        shuffled_trace((3, 7, 9, 11), 30, style="longproc", rng=random.Random(seed)).text for seed in (0, 0, 1)
    )
    assert first == again != other


@pytest.mark.parametrize(
    ("numbers", "target", "style", "said"),
    [
        ((1, 1, 1), 50, "longproc", r"the numbers \[1, 1, 1\] do not reach the target 50"),
        ((1, 2), 3, "direct", "style must be one of longproc, annotated, got 'direct'"),
        ((3,), 3, "longproc", "two or more"),
    ],
)
def test_refusals(numbers: tuple[int, ...], target: int, style: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        shuffled_trace(numbers, target, style=style, rng=random.Random(0))
