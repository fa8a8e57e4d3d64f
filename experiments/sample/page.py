"""What ``make sample`` prints: the problem, each completion with its steps in colour, and what the colours mean.

Colours only repeat what words say; where no terminal listens there are none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from contrastive_reasoning.tasks.base import Problem, Verdict
from contrastive_reasoning.tasks.countdown import reachable
from experiments.sample.reading import Judged, Reading
from experiments.sample.visible import visible

GOOD, BAD, UNSURE, QUIET = "bold cyan", "bold red", "yellow", "dim"
MOST_CHARACTERS, MOST_STEPS = 4000, 60
"""Of a completion that are shown."""


def show(console: Console, problem: Problem, found: Sequence[Reading], *, start: float | None) -> None:
    """Print everything. ``start`` is the critic's value of the problem before any step, where it has one."""
    console.print(_head(problem, start))
    console.print(_indented(Text(_cut(problem.prompt.rstrip("\n")), style=QUIET)))
    for number, reading in enumerate(found, start=1):
        console.print()
        console.print(Text(f"Completion {number} of {len(found)}", style="bold"), Text(_ending(reading), style=QUIET))
        console.print(_indented(_text(reading)))
        if reading.steps:
            console.print(_indented(_steps(reading)))
        console.print(_verdict(reading.verdict))
    if legend := [*_legend(found)]:
        console.print()
        console.print(*legend, sep="\n")


def _head(problem: Problem, start: float | None) -> Text:
    head = Text.assemble(("Problem ", "bold"), visible(problem.id))
    target = problem.fields.get("target")
    if target is not None:
        within = reachable(problem.fields["numbers"], target)
        head.append(" · the target is ").append(*_reach(within))
    return head if start is None else head.append(" · critic ").append(*_value(start))


def _ending(reading: Reading) -> str:
    return f"{reading.tokens} tokens, {'ended by itself' if reading.finished else 'cut off at its longest'}"


def _text(reading: Reading) -> Text:
    """The completion, its steps coloured where they stand."""
    shown, place = Text(), 0
    for judged in reading.steps:
        shown.append(visible(reading.text[place : judged.step.start]), style=QUIET)
        shown.append(visible(reading.text[judged.step.start : judged.step.end]), style=_style(judged))
        place = judged.step.end
    shown.append(visible(reading.text[place:]), style=QUIET if reading.steps else "")
    if len(shown) > MOST_CHARACTERS:
        more = len(shown) - MOST_CHARACTERS
        shown = shown[:MOST_CHARACTERS].append(f" … {more} characters more", style=QUIET)
    return shown


def _steps(reading: Reading) -> Table:
    with_oracle = any(judged.reachable is not None for judged in reading.steps)
    with_critic = any(judged.value is not None for judged in reading.steps)
    columns = ["", "step", "state", "rules", *["oracle"] * with_oracle, *["critic"] * with_critic]
    table = Table(*columns, box=None, header_style=QUIET)
    for number, judged in enumerate(reading.steps[:MOST_STEPS], start=1):
        written = visible(reading.text[judged.step.start : judged.step.end])
        cells = [Text(str(number), style=QUIET), Text(written, style=_style(judged)), Text(_left(judged))]
        cells += [Text(*_rule(judged))]
        cells += [Text(*_reach(judged.reachable))] * with_oracle + [Text(*_value(judged.value))] * with_critic
        table.add_row(*cells)
    if (more := len(reading.steps) - MOST_STEPS) > 0:
        table.add_row("", Text(f"… and {more} more", style=QUIET))
    return table


def _left(judged: Judged) -> str:
    state = judged.step.state
    return ", ".join(map(str, state)) if isinstance(state, tuple) else ""


def _style(judged: Judged) -> str:
    """Of the step's own text: by the rules first, then by the oracle."""
    if not judged.step.legal:
        return BAD
    return UNSURE if judged.reachable is False else GOOD


def _rule(judged: Judged) -> tuple[str, str]:
    return ("legal", GOOD) if judged.step.legal else ("illegal", BAD)


def _reach(within: bool | None) -> tuple[str, str]:
    return {True: ("within reach", GOOD), False: ("out of reach", UNSURE), None: ("–", QUIET)}[within]


def _value(value: float | None) -> tuple[str, str]:
    return ("–", QUIET) if value is None else (f"{value:.2f}", GOOD if value >= 0.5 else UNSURE)


def _verdict(verdict: Verdict | None) -> Text:
    if verdict is None:
        return Text("Verdict: none, the answer is not known (answer=… names it)", style=QUIET)
    return Text.assemble(
        "Verdict: ",
        (verdict.status, GOOD if verdict.correct else BAD),
        visible(f", {verdict.reason}") if verdict.reason else "",
    )


def _legend(found: Sequence[Reading]) -> Iterator[Text]:
    judged = [step for reading in found for step in reading.steps]
    with_oracle = any(step.reachable is not None for step in judged)
    if judged:
        aimless = [" · ", ("legal, the target out of reach", UNSURE)] if with_oracle else []
        yield Text.assemble(("legal", GOOD), *aimless, " · ", ("illegal", BAD))
    if with_oracle:
        yield Text("oracle: exact, can the target still be reached from the state, the numbers left?", style=QUIET)
    if any(step.value is not None for step in judged):
        yield Text("critic: its value of the step, σ(f/τ) in [0, 1]", style=QUIET)


def _indented(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2), expand=False)


def _cut(text: str) -> str:
    seen = visible(text)
    return seen if len(seen) <= MOST_CHARACTERS else f"{seen[:MOST_CHARACTERS]} … {len(seen)} characters in all"
