from __future__ import annotations

import random

import pytest

from contrastive_reasoning.tasks.countdown.longproc_scores import longproc_scores
from contrastive_reasoning.tasks.countdown.problem import CountdownProblem
from contrastive_reasoning.tasks.countdown.trace import search_trace
from tests.pace import assert_bounded_work

PROBLEM = CountdownProblem((21, 16, 17, 26), 46)
TEXT = search_trace(PROBLEM.numbers, PROBLEM.target).text
SEARCH = TEXT.split("\n\n")[0].split("\n")
"""The header, the first line, and the ten lines that are scored."""
SOLUTION = TEXT[TEXT.index("<Solution>") :]


def scores(completion: str) -> tuple[float, float, float]:
    found = longproc_scores(PROBLEM, completion)
    return found["accuracy"], found["partial_accuracy"], found["extraction_rate"]


def test_a_right_solution_scores_one_whatever_stands_before_it() -> None:
    assert scores(TEXT) == (1, 1, 1)
    assert scores(SOLUTION) == (1, 1, 1)
    assert scores("# Search Procedure\nnonsense\n" + SOLUTION) == (1, 1, 1)


@pytest.mark.parametrize("kept", range(len(SEARCH) - 1))
def test_a_search_that_stops_scores_the_index_of_its_last_line(kept: int) -> None:
    """Counted from 0 over the lines after the first one, so the first line alone scores −1/n."""
    assert len(SEARCH) == 12
    assert scores("\n".join(SEARCH[: 2 + kept])) == (0, (kept - 1) / 10, 0)


@pytest.mark.parametrize("wrong", range(2, len(SEARCH)))
def test_a_search_that_goes_wrong_scores_the_index_of_the_line_that_does(wrong: int) -> None:
    lines = [*SEARCH[:wrong], "nonsense", *SEARCH[wrong + 1 :]]
    assert scores("\n".join(lines)) == (0, (wrong - 2) / 10, 0)


def test_operands_and_the_decision_to_drop_count_but_results_do_not() -> None:
    leaf = SEARCH.index("     |- Try 54 + 26 = 80. Evaluate 80 != 46, drop this branch.")
    for line, partial in [
        ("     |- Try 54 + 26 = 81. Evaluate 81 != 46, drop this branch.", 9 / 10),
        ("     |- Try 54 + 27 = 80. Evaluate 80 != 46, drop this branch.", (leaf - 2) / 10),
        ("     |- Try 54 + 26 = 80. Evaluate 80 != 46, continue.", (leaf - 2) / 10),
    ]:
        assert scores("\n".join([*SEARCH[:leaf], line, *SEARCH[leaf + 1 :]]))[1] == partial


def test_no_header_or_another_first_line_scores_nothing() -> None:
    assert scores("\n".join(SEARCH[1:])) == (0, 0, 0)
    assert scores("# Search Procedure") == (0, 0, 0)
    assert scores("\n".join(["# Search Procedure", SEARCH[1] + " ", *SEARCH[2:]])) == (0, 0, 0)
    assert scores("<Search Procedure>\n" + "\n".join(SEARCH[1:])) == (0, 0, 0)


def test_the_last_header_and_the_first_tags_count() -> None:
    assert scores("# Search Procedure\nnonsense\n" + "\n".join(SEARCH)) == (0, 9 / 10, 0)
    wrong = SOLUTION.replace("46", "47")
    assert scores(wrong + SOLUTION) == (0, 0, 1)
    assert scores(SOLUTION + wrong) == (1, 1, 1)
    assert scores("</Solution>" + SOLUTION) == (0, 0, 1)
    assert scores("\n".join(SEARCH) + "\n\n" + wrong) == (0, 9 / 10, 1)


@pytest.mark.parametrize("line", ["1. 21 + 16 = 37", "$21 + 16 = 37$", "021 + 16 = 37", "2１ + 1６ = 37", "21 / 0 = 0"])
def test_what_crashes_the_reference_scores_nothing(line: str) -> None:
    assert scores(f"<Solution>\n{line}\n37 - 17 = 20\n26 + 20 = 46\n</Solution>") == (0, 0, 0)


@pytest.mark.parametrize(
    "line", ["21 + 16 = 38", "21.0 + 16 = 37", "(21 + 16) = 37", "2_1 + 16 = 37", "21 + 16 37", "2 - -1 = 3"]
)
def test_what_it_rejects_in_peace_is_extracted(line: str) -> None:
    assert scores(f"<Solution>\n{line}\n37 - 17 = 20\n26 + 20 = 46\n</Solution>") == (0, 0, 1)


def test_three_to_six_numbers() -> None:
    for numbers, target in [((6, 7, 2), 44), ((3, 5, 7, 9, 11), 24), ((1, 2, 3, 4, 5, 6), 40)]:
        problem = CountdownProblem(numbers, target)
        text = search_trace(numbers, target).text
        assert longproc_scores(problem, text)["accuracy"] == 1
        count = len(text.split("\n\n")[0].split("\n")) - 2
        assert longproc_scores(problem, text.split("\n\n")[0])["partial_accuracy"] == (count - 1) / count


def test_random_garbage_never_raises_and_stays_in_range() -> None:
    draw = random.Random(2)
    fragments = [
        *SEARCH,
        SOLUTION,
        "<Solution>",
        "</Solution>",
        "# Search Procedure",
        "\n",
        "\n\n",
        "=",
        "\ud800",
        "\x00",
        "'",
        "\\d",
    ]
    for _ in range(3000):
        accuracy, partial, extraction = scores("\n".join(draw.choices(fragments, k=draw.randint(0, 12))))
        assert accuracy in (0, 1)
        assert extraction in (0, 1)
        assert -1 / 10 <= partial <= 1


@pytest.mark.parametrize(
    "piece", ["(", "9**", "lambda:", "[", "\n", " ", "<Solution>", "# Search Procedure\n", "|- Try   ", "\ud800"]
)
def test_a_megabyte_takes_bounded_work(piece: str) -> None:
    hostile = (piece * 1_000_000)[:1_000_000]
    with assert_bounded_work():
        assert scores(f"<Solution>\n{hostile}=1\n1=1\n1=1</Solution>")[0] == 0
        assert scores(f"<Solution>\n{hostile[:3000]}=1\n1=1\n1=1</Solution>")[0] == 0
        assert scores("\n".join([*SEARCH[:2], hostile]))[0] == 0
