"""Written searches against handwritten texts and the published annotated lines; LongProc's own are in tests/golden.

The same parser reads searches in a shuffled order, and they verify as correct. In list order they are LongProc's text.
"""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from contrastive_reasoning.tasks.base import Step
from contrastive_reasoning.tasks.countdown import CountdownProblem, legal_moves, parse_steps, verify
from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.trace import (
    STYLES,
    path_text,
    search_trace,
    shuffled_trace,
    step_texts,
    wording_of,
)

ANNOTATED = """\
<Search Procedure>
Initial number set: [21, 16, 17, 26], target: 46
Pick two numbers (21, 16) (numbers left: [17, 26]). Try possible operations. ### Current State: [21, 16, 17, 26]
|- Try 21 + 16 = 37. Add 37 to the number set. Current number set: [37, 17, 26], target: 46. Options for choosing two \
numbers: [(37, 17), (37, 26), (17, 26)]. ### Current State: [37, 17, 26]
Pick two numbers (37, 17) (numbers left: [26]). Try possible operations. ### Current State: [37, 17, 26]
|- Try 37 + 17 = 54. Add 54 to the number set. Current number set: [54, 26], target: 46, just two numbers left. \
### Current State: [54, 26]
|- Try 54 + 26 = 80. Evaluate 80 != 46, drop this branch. ### Current State: [80]
|- Try 54 - 26 = 28. Evaluate 28 != 46, drop this branch. ### Current State: [28]
|- Try 54 * 26 = 1404. Evaluate 1404 != 46, drop this branch. ### Current State: [1404]
|- Try 54 / 26 = 2.1. 2.1 is a decimal, drop this branch. ### Current State: [54, 26]
|- Try 37 - 17 = 20. Add 20 to the number set. Current number set: [20, 26], target: 46, just two numbers left. \
### Current State: [20, 26]
|- Try 26 + 20 = 46. Evaluate 46 == 46, target! ### Current State: [46]
</Search Procedure>

Now we have found the target, let's trace back the solution:
Final step: 26 + 20 = 46
The step before: 37 - 17 = 20
The first step: 21 + 16 = 37

Output the solution in the required format:
<Solution>
21 + 16 = 37
37 - 17 = 20
26 + 20 = 46
</Solution>
"""


RELEASED = """\
<Search Procedure>
Initial number set: [60, 45, 0], target: 45. Options for choosing two numbers: [(60, 45), (60, 0), (45, 0)].
|- Pick two numbers (60, 45) (numbers left: [0]). Try possible operations. ### Current State: [60, 45, 0]
  |- Try 60 + 45 = 105. Add 105 to the number set. Current number set: [105, 0], target: 45, just two numbers left. \
### Current State: [105, 0]
  |- Try 105 + 0 = 105. Evaluate 105 != 45, drop this branch. ### Current State: [105]
  |- Try 105 - 0 = 105. Evaluate 105 != 45, drop this branch. ### Current State: [105]
  |- Try 105 * 0 = 0. Evaluate 0 != 45, drop this branch. ### Current State: [0]
  |- Try 105 / 0 (invalid operation). drop this branch. ### Current State: [105, 0]
  |- Try 60 - 45 = 15. Add 15 to the number set. Current number set: [15, 0], target: 45, just two numbers left. \
### Current State: [15, 0]
  |- Try 15 + 0 = 15. Evaluate 15 != 45, drop this branch. ### Current State: [15]
  |- Try 15 - 0 = 15. Evaluate 15 != 45, drop this branch. ### Current State: [15]
  |- Try 15 * 0 = 0. Evaluate 0 != 45, drop this branch. ### Current State: [0]
  |- Try 15 / 0 (invalid operation). drop this branch. ### Current State: [15, 0]
  |- Try 60 * 45 = 2700. 2700 exceeds the maximum intermediate result, drop this branch. ### Current State: [2700, 0]
  |- Try 60 / 45 = 1.3. 1.3 is a decimal, drop this branch. ### Current State: [1.3, 0]
|- Pick two numbers (60, 0) (numbers left: [45]). Try possible operations. ### Current State: [60, 45, 0]
  |- Try 60 + 0 = 60. Add 60 to the number set. Current number set: [60, 45], target: 45, just two numbers left. \
### Current State: [60, 45]
  |- Try 60 + 45 = 105. Evaluate 105 != 45, drop this branch. ### Current State: [105]
  |- Try 60 - 45 = 15. Evaluate 15 != 45, drop this branch. ### Current State: [15]
  |- Try 60 * 45 = 2700. 2700 exceeds the maximum intermediate result, drop this branch. ### Current State: [2700]
  |- Try 60 / 45 = 1.3. 1.3 is a decimal, drop this branch. ### Current State: [1.3]
  |- Try 60 - 0 = 60. Add 60 to the number set. Current number set: [60, 45], target: 45, just two numbers left. \
### Current State: [60, 45]
  |- Try 60 + 45 = 105. Evaluate 105 != 45, drop this branch. ### Current State: [105]
  |- Try 60 - 45 = 15. Evaluate 15 != 45, drop this branch. ### Current State: [15]
  |- Try 60 * 45 = 2700. 2700 exceeds the maximum intermediate result, drop this branch. ### Current State: [2700]
  |- Try 60 / 45 = 1.3. 1.3 is a decimal, drop this branch. ### Current State: [1.3]
  |- Try 60 * 0 = 0. Add 0 to the number set. Current number set: [0, 45], target: 45, just two numbers left. \
### Current State: [0, 45]
  |- Try 45 + 0 = 45. Evaluate 45 == 45, target found! ### Current State: [45]
</Search Procedure>

Now we have found the target, let's trace back the solution:
Final step: 45 + 0 = 45
The first step: 60 * 0 = 0

Output the solution in the required format:
<Solution>
60 * 0 = 0
45 + 0 = 45
</Solution>
"""

TWO_NUMBERS_BACKWARDS = """\
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


@pytest.mark.parametrize(
    ("numbers", "target", "style", "text"),
    [
        ((21, 16, 17, 26), 46, "annotated", ANNOTATED),
        ((60, 45, 0), 45, "released", RELEASED),
        ((21, 16, 17, 26), 46, "direct", "21+16=37;37-17=20;26+20=46"),
    ],
)
def test_search_trace_equals_handwritten_text(numbers: tuple[int, ...], target: int, style: str, text: str) -> None:
    assert search_trace(numbers, target, style=style).text == text
    assert len({search_trace(numbers, target, style=style).solution for style in STYLES}) == 1


def test_released_style_indents_by_two_for_each_number_that_is_gone() -> None:
    lines = search_trace((21, 16, 17, 26), 46, style="released").text.splitlines()[2:7]
    assert [len(line) - len(line.lstrip(" ")) for line in lines] == [0, 2, 2, 4, 4]


@pytest.mark.parametrize(
    ("numbers", "target", "style", "named"),
    [
        ((1, 1, 1), 50, "longproc", r"\[1, 1, 1\].*50"),
        ((1, 1, 1), 50, "direct", r"\[1, 1, 1\].*50"),
        ((1, 1, 1, 1, 1, 1), 1999, "annotated", "1999"),
        ((3,), 3, "longproc", "two or more"),
        ((1, 2), 3, "short", "style.*'short'"),
    ],
)
def test_trace_of_unsolvable_problem_or_unknown_style_raises(
    numbers: tuple[int, ...], target: int, style: str, named: str
) -> None:
    traces = [search_trace, *([] if style == "direct" else [partial(shuffled_trace, rng=random.Random(0))])]
    for trace in traces:
        with pytest.raises(ValueError, match=named):
            trace(numbers, target, style=style)


class ListOrder(random.Random):
    """Keeps every order unchanged."""

    def shuffle(self, x: Any) -> None:
        pass


class Backwards(random.Random):
    def shuffle(self, x: Any) -> None:
        x.reverse()


def problems(count: int, *, seed: int, style: str = "longproc") -> list[CountdownProblem]:
    """Solvable problems of two, three and four numbers, including zeros, equal numbers and large numbers."""
    rng, found = random.Random(seed), []
    while len(found) < count:
        numbers = [rng.choice([0, 1, 2, 5, 14, 33, 60, 700, 2500, *range(1, 13)]) for _ in range(2 + len(found) % 3)]
        target = rng.randint(0, 50)
        if reachable(numbers, target):
            found.append(CountdownProblem(numbers, target, style=style))
    return found


def test_shuffled_trace_in_reverse_order_equals_handwritten_text() -> None:
    assert shuffled_trace((3, 8), 5, style="longproc", rng=Backwards()).text == TWO_NUMBERS_BACKWARDS


@pytest.mark.parametrize("style", ["longproc", "annotated", "released"])
def test_shuffled_trace_in_list_order_equals_search_trace(style: str) -> None:
    for problem in problems(60, seed=1):
        drawn = shuffled_trace(problem.numbers, problem.target, style=style, rng=ListOrder())
        assert drawn == search_trace(problem.numbers, problem.target, style=style)


@pytest.mark.parametrize("style", ["longproc", "annotated", "released"])
def test_shuffled_traces_are_parsed_and_verified_as_correct(style: str) -> None:
    rng = random.Random(2)
    for problem in problems(90, seed=3, style=style):
        trace = shuffled_trace(problem.numbers, problem.target, style=style, rng=rng)
        steps = parse_steps(problem, trace.text)
        assert all(step.legal for step in steps)
        assert steps[-1].state == (problem.target,)
        assert verify(problem, trace.text).correct, trace.text


def test_shuffled_trace_draws_first_pair_and_operation_uniformly() -> None:
    rng, counts = random.Random(4), dict.fromkeys(["+", "-", "*", "/"], 0)
    pairs: dict[str, int] = {}
    for _ in range(1200):
        lines = shuffled_trace((12, 6, 3), 21, style="longproc", rng=rng).text.split("\n")
        counts[lines[3].split("Try ")[1].split(" ")[1]] += 1
        pairs[lines[2].split("(")[1]] = pairs.get(lines[2].split("(")[1], 0) + 1
    assert len(pairs) == 3
    assert all(abs(count - 300) < 75 for count in counts.values())  # five standard deviations
    assert all(abs(count - 400) < 82 for count in pairs.values())


def test_path_text_equals_trace_of_search_without_backtracking() -> None:
    numbers, target = (25, 39, 32, 4), 100  # 25 + 39 + 32 + 4: the first line of play
    first = legal_moves(numbers)[0]
    moves = [first, legal_moves(first.state)[0]]
    for style in ("longproc", "annotated", "released"):
        assert search_trace(numbers, target, style=style).text.startswith(
            path_text(numbers, target, moves, style=style) + "\n"
        )


def test_step_texts_rewrite_direct_moves_as_search() -> None:
    problem = CountdownProblem((25, 39, 32, 4), 100, style="direct")
    completion = "25+39=64;64+32=96;96+4=100"
    steps = parse_steps(problem, completion)
    for style in ("longproc", "annotated"):
        texts = step_texts(problem, completion, steps, style=style)
        procedure = search_trace(problem.numbers, problem.target, style=style).text.split(wording_of(style).end, 1)[0]
        assert texts[-1] == procedure
        assert [procedure.startswith(text + "\n") for text in texts] == [True, True, False]
    miss = Step(start=0, end=5, state=(8,), legal=True)
    (missed,) = step_texts(CountdownProblem((5, 3), 2, style="direct"), "5+3=8", [miss], style="annotated")
    assert missed.endswith("target: 2\n|- Try 5 + 3 = 8. Evaluate 8 != 2, drop this branch. ### Current State: [8]")
