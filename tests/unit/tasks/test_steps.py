"""Steps in every format: character spans of sentences, and settled steps, which later text cannot change."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import pairwise

import pytest

from contrastive_reasoning.tasks.arithmetic.equations import parse_steps as equations
from contrastive_reasoning.tasks.base import Problem, Step
from contrastive_reasoning.tasks.countdown import CountdownProblem, parse_steps, verify
from contrastive_reasoning.tasks.problem_set import MAX_STEPS, sentence_steps


def pieces(text: str) -> list[str]:
    return [text[step.start : step.end] for step in sentence_steps(text)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2+3 = 5. So 5·2 = 10.\nThe answer is 10.", ["2+3 = 5.", "So 5·2 = 10.", "The answer is 10."]),
        ("It costs 3.50 dollars. $x = 2$ then.", ["It costs 3.50 dollars.", "$x = 2$ then."]),
        ("a\n\n  b  \n\t\nc", ["a", "b", "c"]),
        (r"Right! \boxed{5} Is it? Yes.", ["Right!", r"\boxed{5} Is it?", "Yes."]),
        ("half a sentence", ["half a sentence"]),
        (" \n\n ", []),
        ("", []),
    ],
)
def test_sentence_steps_split_text_into_sentences(text: str, expected: list[str]) -> None:
    assert pieces(text) == expected
    assert len(sentence_steps("A.\n" * (MAX_STEPS + 10))) == MAX_STEPS


def test_sentence_steps_are_ordered_and_cover_all_nonblank_characters() -> None:
    rng = random.Random(0)
    for _ in range(200):
        text = "".join(rng.choice("aB1.!? \n\t$\\ü") for _ in range(rng.randrange(60)))
        steps = sentence_steps(text)
        assert [step.state for step in steps] == list(range(1, len(steps) + 1))
        assert all(step.legal and step.start < step.end for step in steps)
        assert all(before.end <= after.start for before, after in pairwise(steps))
        kept = "".join(text[step.start : step.end] for step in steps)
        assert "".join(kept.split()) == "".join(text.split())


MOVES = ["1+2=3", "3+4=7", "5+1=6", ";", ";", "\n", " ", "\r", "3", "x", "<Solution>", "</Solution>", "Try 1+2=3"]
LINES = ["Try 1 + 2 = 3. ", "Try 3 + 4 = 7. ", "Current number set: [3, 4]", "Evaluate 7", "\n", "\n", "\r", "|- ", "x"]
EQUATIONS = ["1+2=3", "2 × 2 = 4", "4", "5", ".", ",", " ", "+", "×", "\n", "é"]
SENTENCES = ["So it is", "2+2", ".", "!", " ", "\t", "A", "b", "$", "\n"]
Reader = Callable[[str], list[Step]]


def countdown(style: str) -> Reader:
    return lambda text: parse_steps(CountdownProblem((1, 2, 4), 7, style=style), text)


def settled(steps: list[Step], length: int) -> list[Step]:
    return [step for step in steps if step.settled is not None and step.settled <= length]


@pytest.mark.parametrize(
    ("read", "pieces"),
    [
        (countdown("direct"), MOVES),
        (countdown("longproc"), LINES),
        (lambda text: equations(Problem(id="0", prompt="", answer="7"), text), EQUATIONS),
        (sentence_steps, SENTENCES),
    ],
    ids=["moves", "search", "equations", "sentences"],
)
def test_settled_steps_do_not_change_with_later_text(read: Reader, pieces: list[str]) -> None:
    draw = random.Random(0)
    found = 0
    for _ in range(400):
        text = "".join(draw.choices(pieces, k=draw.randint(1, 40)))
        steps = read(text)
        found += len(settled(steps, len(text)))
        for length in range(len(text)):
            assert settled(read(text[:length]), length) == settled(steps, length), (text, length)
        assert all(step.settled is not None and step.settled > step.end for step in steps)
    assert found > 100


def test_illegal_move_loses_only_in_direct_style() -> None:
    def lost(style: str, text: str) -> list[bool]:
        return [step.lost for step in countdown(style)(text)]

    assert lost("direct", "1+2=3;3+5=8;3+4=7") == [False, True, True]
    text = "1+2=3;x\nTry 1 + 2 = 3. Evaluate 3\n<Solution>\n3+4=7\n</Solution>"
    assert len(lost("direct", text)) == 2, "whatever else is written: its verifier reads the whole text, too"
    assert lost("longproc", "Try 1 + 2 = 3. x\nTry 3 + 5 = 8. x\nTry 3 + 4 = 7. x\n") == [False] * 3
    assert lost("longproc", "<Solution>\n1+2=3\n3+5=8\n</Solution>") == [False] * 2


def test_accepted_completion_has_no_lost_step() -> None:
    """The texts have random blanks wherever the verifier allows them."""
    draw = random.Random(1)
    problem = CountdownProblem((1, 2, 4), 7, style="direct")
    for _ in range(200):
        blanks = ["".join(draw.choices(" \t\r", k=draw.choice([0, 1, 20]))) for _ in range(4)]
        text = f"{blanks[0]}1+2=3{blanks[1]}{draw.choice(';' + chr(10))}{blanks[2]}3+4=7{blanks[3]}"
        assert verify(problem, text).correct
        assert [(step.legal, step.lost) for step in parse_steps(problem, text)] == [(True, False)] * 2, text
