from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.base import Step
from contrastive_reasoning.tasks.countdown.game import legal_moves
from contrastive_reasoning.tasks.countdown.oracle import reachable_targets
from contrastive_reasoning.tasks.countdown.problem import CountdownProblem
from contrastive_reasoning.tasks.countdown.steps import MAX_STEPS, parse_steps
from contrastive_reasoning.tasks.countdown.trace import search_trace
from tests.pace import assert_bounded_work

NUMBERS, TARGET = (21, 16, 17, 26), 46
DIRECT = CountdownProblem(NUMBERS, TARGET, style="direct")
SEARCH = CountdownProblem(NUMBERS, TARGET)
ANNOTATED = CountdownProblem(NUMBERS, TARGET, style="annotated")


def read(problem: CountdownProblem, text: str) -> list[tuple[str, tuple[int, ...], bool]]:
    """The steps as (text, state, legal)."""
    return [(text[step.start : step.end], step.state, step.legal) for step in parse_steps(problem, text)]


def expected_search(numbers: tuple[int, ...], target: int) -> list[tuple[str, tuple[int, ...]]]:
    """Reference search by recursion in LongProc's order up to the target: every legal move and its state."""
    visited: list[tuple[str, tuple[int, ...]]] = []

    def explore(state: tuple[int, ...]) -> bool:
        if len(state) == 1:
            return state == (target,)
        for a, op, b, result, after in legal_moves(state):
            visited.append((f"{a} {op} {b} = {result}", after))
            if explore(after):
                return True
        return False

    assert explore(numbers)
    return visited


def random_problems(count: int, seed: int) -> list[tuple[tuple[int, ...], int]]:
    """Problems with small numbers: equal numbers, zeros and equal states on different branches are frequent."""
    draw = random.Random(seed)
    problems = []
    for size in [3, 4, 4, 4, 5] * (count // 5):
        numbers = tuple(draw.randint(0, draw.choice([3, 12, 49])) for _ in range(size))
        problems.append((numbers, draw.choice(sorted(reachable_targets(numbers)))))
    return problems


@pytest.mark.parametrize("style", ["longproc", "annotated"])
def test_steps_of_search_are_its_legal_moves(style: str) -> None:
    for numbers, target in random_problems(20, seed=5):
        text = search_trace(numbers, target, style=style).text
        steps = parse_steps(CountdownProblem(numbers, target, style=style), text)
        expected = expected_search(numbers, target)
        assert [step.state for step in steps] == [state for _, state in expected]
        assert all(step.legal for step in steps)
        for step, (equation, _) in zip(steps, expected, strict=True):
            line = text[step.start : step.end]
            assert line.startswith(f"Try {equation}. ")
            assert text[step.end] == "\n"
            assert text[text.rindex("\n", 0, step.start) + 1 : step.start].strip() == "|-"


def test_illegal_move_keeps_state_and_later_moves_are_read() -> None:
    assert read(DIRECT, "21+16=37;21-17=4;37-17=21;37-17=20;26+20=46;46+1=47") == [
        ("21+16=37", (37, 17, 26), True),
        ("21-17=4", (37, 17, 26), False),
        ("37-17=21", (37, 17, 26), False),
        ("37-17=20", (20, 26), True),
        ("26+20=46", (46,), True),
        ("46+1=47", (46,), False),
    ]


def test_text_between_moves_is_skipped() -> None:
    assert read(DIRECT, " 16 + 21 = 37 ;\n\r\n17-37=20; 20") == [
        ("16 + 21 = 37", (37, 17, 26), True),
        ("17-37=20", (37, 17, 26), False),
    ]
    assert read(DIRECT, "é\ud800;21+16=37;so\n１+1=2;-1+2=1;37-17=20.;37-17=20 ok;37-17=20") == [
        ("21+16=37", (37, 17, 26), True),
        ("37-17=20", (20, 26), True),
    ]


@pytest.mark.parametrize("before", ["", "<Solution>\n26 + 21 = 47\n</Solution>\n"])
def test_steps_are_read_from_last_solution_block_without_search(before: str) -> None:
    text = before + "1 + 1 = 2\n<Solution>\n21 + 16 = 37\n37 - 17 = 20\n</Solution>\n26 + 20 = 46"
    assert read(SEARCH, text) == [("21 + 16 = 37", (37, 17, 26), True), ("37 - 17 = 20", (20, 26), True)]


@pytest.mark.parametrize(
    ("line", "legal"),
    [
        ("Try 37 - 17 = 20. Add 20 to the number set. Current number set: [20, 26], target: 46", True),
        ("Try 37 - 17 = 20. Add 20 to the number set. Current number set: [26, 20], target: 46", True),
        ("Try 37 - 17 = 20. Add 20 to the number set. Current number set: [20, 27], target: 46", False),
        ("Try 37 - 17 = 20. Add 20 to the number set. Current number set: [20], target: 46", False),
        ("Try 37 - 17 = 21. Add 21 to the number set. Current number set: [21, 26], target: 46", False),
        ("Try 37 - 18 = 19. Add 19 to the number set. Current number set: [19, 26], target: 46", False),
        ("Try 37 - 17 = 20. Evaluate 20 != 46, drop this branch.", False),  # three numbers are left, not two
        ("Try 37 - 17 = 20, and so on", True),
        ("Try 37 * 1 + 17 = 54. Add 54 to the number set.", False),
        ("Try 37 - 17 = 20. 20 exceeds the maximum intermediate result, drop this branch.", False),
        ("Try -1 + 2 = 1. Evaluate 1 != 46", False),
    ],
)
def test_legality_of_single_search_line(line: str, legal: bool) -> None:
    first = " |- Try 21 + 16 = 37. Add 37 to the number set. Current number set: [37, 17, 26], target: 46\n"
    steps = read(SEARCH, f"{first}  |- {line}\nTry again\n")
    assert steps[0] == (first[4:-1], (37, 17, 26), True)
    assert [(text, allowed) for text, _, allowed in steps[1:]] == [(line, legal)]
    assert sorted(steps[1][1]) == ([20, 26] if legal else [17, 26, 37])


def test_backtracking_discards_states_of_abandoned_branch() -> None:
    lines = [
        "Try 21 + 16 = 37. Add 37. Current number set: [37, 17, 26]",
        "Try 37 - 17 = 20. Add 20. Current number set: [20, 26]",
        "Try 21 - 16 = 5. Add 5. Current number set: [5, 17, 26]",
        "Try 26 + 20 = 46. Evaluate 46 == 46, target found!",
    ]
    steps = read(SEARCH, "\n".join(lines))
    assert [(state, legal) for _, state, legal in steps] == [
        ((37, 17, 26), True),
        ((20, 26), True),
        ((5, 17, 26), True),
        ((5, 17, 26), False),  # 20 belongs to the abandoned branch
    ]
    text = search_trace(NUMBERS, TARGET).text
    assert parse_steps(SEARCH, text) == parse_steps(SEARCH, text[: text.index("<Solution>")]), "which repeats its moves"


@pytest.mark.parametrize(
    "line",
    [
        "37 / 17 = 2.2. 2.2 is a decimal, drop this branch.",
        "17 / 0 (invalid operation). drop this branch.",
        "629 * 26 = 16354. 16354 exceeds the maximum intermediate result, drop this branch.",
        "possible operations.",
    ],
)
def test_line_that_drops_forbidden_operation_is_not_a_step(line: str) -> None:
    (step,) = read(SEARCH, f"|- Try {line}\n|- Try 21 + 16 = 37. Evaluate\n")
    assert step[0] == "Try 21 + 16 = 37. Evaluate"


def test_parse_steps_reads_at_most_max_steps() -> None:
    assert len(parse_steps(DIRECT, "1+1=2;" * (MAX_STEPS + 5))) == MAX_STEPS
    assert len(parse_steps(SEARCH, "|- Try 1 + 1 = 2.\n" * (MAX_STEPS + 5))) == MAX_STEPS


def test_random_text_gives_ordered_spans_and_valid_states() -> None:
    draw = random.Random(8)
    texts = [search_trace(NUMBERS, TARGET, style=style).text for style in ("longproc", "annotated")]
    cut = ["|- Try ", "Try 1", "Current number set: [", "1, ", "] "]
    pieces = [*"\n".join(texts).split("\n"), *cut, "21+16=37", ";", "\n", "\r", "\ud800", "\x00", "𝟙"]
    for _ in range(2000):
        glue = draw.choice(["", "\n", ";"])
        text = glue.join(draw.choices(pieces, k=draw.randint(0, 20)))
        check(parse_steps(draw.choice([SEARCH, ANNOTATED, DIRECT]), text), len(text))


def check(steps: list[Step], length: int) -> None:
    end = 0
    for step in steps:
        assert end <= step.start < step.end <= length
        assert 1 <= len(step.state) <= len(NUMBERS)
        assert step.legal is False or len(step.state) < len(NUMBERS)
        end = step.end


HOSTILE = [
    *("1", " ", "\n", ";", "|- ", "\ud800", "２１＋１６＝３７;", "1+1=2;", "21+16=37;", "1 + "),
    *("|- Try 1\n", "|- Try 1 + 1 = 2. Evaluate\n", "<Solution>", "<Solution></Solution>"),
    "|- Try 21 + 16 = 37. Current number set: [37, 17, 26]\n|- Try 37 - 17 = 20. Current number set: [20, 26]\n",
]


@pytest.mark.parametrize("piece", HOSTILE)
@pytest.mark.parametrize("head", ["", "|- Try 21 + 16 = 37. Current number set: [1, "])
def test_parse_steps_takes_bounded_work_on_megabyte_text(head: str, piece: str) -> None:
    text = (head + piece * (1_000_000 // len(piece) + 1))[:1_000_000]
    with assert_bounded_work():
        steps = parse_steps(SEARCH, text)
    check(steps, len(text))
