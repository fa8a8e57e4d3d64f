"""The written search: a text by hand, the published annotated lines, and a slow writer made of plain prints."""

from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.countdown.oracle import reachable
from contrastive_reasoning.tasks.countdown.trace import STYLES, search_trace

TWO_NUMBERS = """\
# Search Procedure
Initial number set: [3, 8], target: 5, just two numbers left.
 |- Try 8 + 3 = 11. Evaluate 11 != 5, drop this branch.
 |- Try 8 - 3 = 5. Evaluate 5 == 5, target found!

Now we have found the target, let's trace back the solution:
Final step: 8 - 3 = 5

Output the solution in the required format:
<Solution>
8 - 3 = 5
</Solution>
"""

THREE_NUMBERS = """\
# Search Procedure
Initial number set: [50, 50, 7], target: 7. Options for choosing two numbers: [(50, 50), (50, 7), (50, 7)].
 |- Pick two numbers (50, 50) (numbers left: [7]). Try possible operations.
  |- Try 50 + 50 = 100. Add 100 to the number set. Current number set: [100, 7], target: 7, just two numbers left.
   |- Try 100 + 7 = 107. Evaluate 107 != 7, drop this branch.
   |- Try 100 - 7 = 93. Evaluate 93 != 7, drop this branch.
   |- Try 100 * 7 = 700. Evaluate 700 != 7, drop this branch.
   |- Try 100 / 7 = 14.3. 14.3 is a decimal, drop this branch.
  |- Try 50 - 50 = 0. Add 0 to the number set. Current number set: [0, 7], target: 7, just two numbers left.
   |- Try 7 + 0 = 7. Evaluate 7 == 7, target found!

Now we have found the target, let's trace back the solution:
Final step: 7 + 0 = 7
The first step: 50 - 50 = 0

Output the solution in the required format:
<Solution>
50 - 50 = 0
7 + 0 = 7
</Solution>
"""

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


def slow_lines(state: list[int], target: int, indent: int) -> tuple[list[str], bool]:
    """The lines under a state, straight from the rules with floats."""
    lines = []
    last = len(state) == 2
    for i in range(len(state)):
        for j in range(i + 1, len(state)):
            left = [number for k, number in enumerate(state) if k not in (i, j)]
            mark = " " * (indent + (1 if last else 2)) + "|- Try"
            if not last:
                pick = f"Pick two numbers ({state[i]}, {state[j]}) (numbers left: {left}). Try possible operations."
                lines.append(" " * (indent + 1) + "|- " + pick)
            a, b = max(state[i], state[j]), min(state[i], state[j])
            for op in "+-*/":
                if op == "/" and b == 0:
                    lines.append(f"{mark} {a} / 0 (invalid operation). drop this branch.")
                    continue
                value = {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else 0}[op]
                if value % 1:
                    lines.append(f"{mark} {a} / {b} = {value:.1f}. {value:.1f} is a decimal, drop this branch.")
                    continue
                value = int(value)
                start = f"{mark} {a} {op} {b} = {value}."
                if value >= 2000:
                    lines.append(f"{start} {value} exceeds the maximum intermediate result, drop this branch.")
                elif last and value == target:
                    return [*lines, f"{start} Evaluate {value} == {target}, target found!"], True
                elif last:
                    lines.append(f"{start} Evaluate {value} != {target}, drop this branch.")
                else:
                    child = [value, *left]
                    below, found = slow_lines(child, target, indent + 2)
                    lines.append(f"{start} Add {value} to the number set. {slow_set('Current', child, target)}")
                    lines += below
                    if found:
                        return lines, True
    return lines, False


def slow_set(name: str, state: list[int], target: int) -> str:
    pairs = ", ".join(f"({a}, {b})" for k, a in enumerate(state) for b in state[k + 1 :])
    tail = ", just two numbers left." if len(state) == 2 else f". Options for choosing two numbers: [{pairs}]."
    return f"{name} number set: {state}, target: {target}{tail}"


@pytest.mark.parametrize(
    ("numbers", "target", "style", "text"),
    [
        ((3, 8), 5, "longproc", TWO_NUMBERS),
        ((50, 50, 7), 7, "longproc", THREE_NUMBERS),
        ((21, 16, 17, 26), 46, "annotated", ANNOTATED),
        ((21, 16, 17, 26), 46, "direct", "21+16=37;37-17=20;26+20=46"),
    ],
)
def test_texts_by_hand(numbers: tuple[int, ...], target: int, style: str, text: str) -> None:
    assert search_trace(numbers, target, style=style).text == text


def test_longproc_text_agrees_with_the_slow_writer() -> None:
    rng = random.Random(3)
    written = 0
    while written < 40:
        numbers = [rng.choice([0, 1, 2, 5, 14, 33, 49, 60, 700, 2500]) for _ in range(rng.randint(2, 4))]
        target = rng.randint(0, 50)
        lines, found = slow_lines(numbers, target, 0)
        if found:
            procedure = search_trace(numbers, target).text.split("\n\n")[0]
            assert procedure == "\n".join(["# Search Procedure", slow_set("Initial", numbers, target), *lines])
            written += 1


def test_styles_find_the_same_solution() -> None:
    rng = random.Random(4)
    for _ in range(60):
        numbers = [rng.randint(0, 12) for _ in range(rng.randint(2, 4))]
        target = rng.randint(0, 30)
        if reachable(numbers, target):
            assert len({search_trace(numbers, target, style=style).solution for style in STYLES}) == 1


def test_six_numbers_trace_back_every_step() -> None:
    trace = search_trace((1, 2, 3, 4, 5, 6), 21)
    back = trace.text.split("\n\n")[1].split("\n")[1:]
    names = ["Final step", "The step before", "The step before", "The step before", "The first step"]
    assert [line.split(": ")[0] for line in back] == names
    assert [line.split(": ")[1] for line in back] == list(reversed(trace.solution))


@pytest.mark.parametrize("style", STYLES)
def test_unsolvable_is_one_sentence(style: str) -> None:
    with pytest.raises(ValueError, match=r"the numbers \[1, 1, 1\] do not reach the target 50"):
        search_trace((1, 1, 1), 50, style=style)


def test_unsolvable_six_numbers_are_refused_at_once() -> None:
    with pytest.raises(ValueError, match="do not reach the target 1999"):
        search_trace((1, 1, 1, 1, 1, 1), 1999)


def test_unknown_style_names_the_valid_ones() -> None:
    with pytest.raises(ValueError, match="style must be one of longproc, annotated, direct, got 'short'"):
        search_trace((1, 2), 3, style="short")


def test_one_number_has_no_trace() -> None:
    with pytest.raises(ValueError, match="two or more"):
        search_trace((3,), 3)
