from __future__ import annotations

import re
from collections.abc import Sequence
from io import StringIO

import pytest
from rich.console import Console

from contrastive_reasoning.rewards.oracle import in_reach
from contrastive_reasoning.tasks.base import Problem, Step, Verdict
from contrastive_reasoning.tasks.countdown import CountdownProblem, parse_steps, verify
from experiments.sample.page import MOST_CHARACTERS, show
from experiments.sample.reading import Judged, Reading

PROBLEM = CountdownProblem((3, 5, 8), 23, style="direct")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RIGHT, AIMLESS, ILLEGAL = "3*5=15;15+8=23", "8*5=40;40-3=37", "3*5=16;9-1=8"
HOSTILE = (
    "\x1b[2J\x1b[31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ [red]markup[/red] [/] [bold \\[x] :smile: "
    "\r\x9b5A\u202e\x07\x00"
)


def reading(text: str, *, values: Sequence[float | None] = (), problem: Problem = PROBLEM) -> Reading:
    steps = parse_steps(problem, text)
    valued = [*values, *[None] * len(steps)]
    judged = [
        Judged(step=step, reachable=in_reach(problem, step), value=value)
        for step, value in zip(steps, valued, strict=False)
    ]
    return Reading(text=text, tokens=7, finished=True, steps=judged, verdict=verify(problem, text))


def page(*found: Reading, problem: Problem = PROBLEM, start: float | None = None, terminal: bool = False) -> str:
    file = StringIO()
    console = Console(file=file, width=120, force_terminal=terminal, color_system="truecolor" if terminal else None)
    show(console, problem, found, start=start)
    return file.getvalue()


def rows(text: str) -> list[list[str]]:
    """The rows of the tables of steps, their cells."""
    return [re.split(r"  +", line.strip()) for line in text.splitlines() if re.match(r" +\d+  ", line)]


def test_each_step_stands_with_what_is_said_of_it() -> None:
    text = page(reading(RIGHT, values=[0.81, 0.9]), reading(AIMLESS, values=[0.2]), reading(ILLEGAL), start=0.7)
    assert text.startswith("Problem countdown:3,5,8=23 · the target is within reach · critic 0.70\n")
    assert rows(text) == [
        ["1", "3*5=15", "15, 8", "legal", "within reach", "0.81"],
        ["2", "15+8=23", "23", "legal", "within reach", "0.90"],
        ["1", "8*5=40", "40, 3", "legal", "out of reach", "0.20"],
        ["2", "40-3=37", "37", "legal", "out of reach", "–"],
        ["1", "3*5=16", "3, 5, 8", "illegal"],
        ["2", "9-1=8", "3, 5, 8", "illegal"],
    ]
    verdicts = [line for line in text.splitlines() if line.startswith("Verdict: ")]
    reason = verify(PROBLEM, ILLEGAL).reason
    assert verdicts == ["Verdict: ok", "Verdict: wrong, ends at 37 instead of 23", f"Verdict: wrong, {reason}"]


def test_no_escape_is_written_where_no_terminal_listens() -> None:
    assert "\x1b" not in page(reading(RIGHT), reading(HOSTILE))


def coloured(text: str) -> dict[str, str]:
    """Words → the codes before them."""
    return {words: codes for codes, words in re.findall(r"\x1b\[([0-9;]+)m([^\x1b]+)\x1b\[0m", text)}


def test_a_terminal_sees_three_kinds_of_steps_in_the_colours_of_the_legend() -> None:
    found = coloured(page(reading(RIGHT), reading(AIMLESS), reading(ILLEGAL), terminal=True))
    kinds = ["legal", "legal, the target out of reach", "illegal"]
    assert [found[step] for step in ("3*5=15", "8*5=40", "3*5=16")] == [found[kind] for kind in kinds]
    assert len({found[kind] for kind in kinds}) == 3


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("text", [HOSTILE, f"3*5=15;{HOSTILE}=1;15+8=23", f"{HOSTILE}\n3*5=15;15+8=23"])
def test_nothing_a_model_wrote_is_obeyed(text: str, terminal: bool) -> None:
    problem = Problem(id=HOSTILE, prompt=HOSTILE, answer="", fields=PROBLEM.fields)
    step = Judged(step=Step(start=0, end=len(text), state=(1,), legal=True), reachable=True, value=0.5)
    said = Reading(
        text=text, tokens=1, finished=False, steps=[step], verdict=Verdict(status="wrong", reason=f"wrote {text}")
    )
    shown = page(said, reading(text), problem=problem, terminal=terminal)
    plain = COLOUR.sub("", shown)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", plain)
    joined = re.sub(r"\s+", "", plain)
    assert r"\x1b[2J\x1b[31mred\x1b[0m" in joined
    assert joined.count(r"[red]markup[/red][/][bold\[x]:smile:") >= 5  # id, prompt, completion, step, reason


def test_a_long_completion_is_cut_and_says_so() -> None:
    shown = page(reading("x" * (MOST_CHARACTERS + 5)))
    assert shown.count("x") - shown.count("characters") < MOST_CHARACTERS + 20
    assert "5 characters more" in " ".join(shown.split())


def test_where_no_answer_is_known_there_is_no_verdict() -> None:
    problem = Problem(id="given", prompt="Hello", answer="")
    shown = page(Reading(text="World", tokens=1, finished=False, steps=[], verdict=None), problem=problem)
    assert shown == (
        "Problem given\n  Hello\n\nCompletion 1 of 1 1 tokens, cut off at its longest\n  World\n"
        "Verdict: none, the answer is not known (answer=… names it)\n"
    )
