"""Triples cut from a written search by its indentation, as the critic paper's later code cuts them.

A line that is indented deeper than the one before it and less deep than the one after it is an action; its state is all
lines before it, and its goals are the lines after it up to the next one of the same indentation:

    0  |- Pick …
    1    |- Try …             action; goals 2 and 3
    2      |- Pick …          action; goal 3
    3        |- Try …
    4    |- Try …             not deeper than 3; ends the goals of 1, and those of 2 end with the search

LongProc's searches are indented so. In the annotated ones of that code's own prompt no line is: a level begins with two
lines of the same indentation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

MARK = "|-"
"""Begins each line of a search, after its indentation."""
STATE = re.compile(r"### Current State: \[([0-9., ]{1,200})\]")
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")


class LineTriple(NamedTuple):
    """Places of lines in a search: the action, whose state is all lines before it, and a goal after it."""

    action: int
    goal: int


def search_lines(text: str) -> list[str]:
    """The first run of lines in a completion that begin with ``|-``, with their indentation; empty without one."""
    lines = text.split("\n")
    first = next((place for place, line in enumerate(lines) if _belongs(line)), len(lines))
    return list(takewhile(_belongs, lines[first:]))


def line_triples(lines: Sequence[str]) -> list[LineTriple]:
    """Every action of a search with each of its goals, in the order of the lines."""
    depths = [len(line) - len(line.lstrip()) for line in lines]
    triples = []
    for action in range(1, len(lines) - 1):
        if depths[action - 1] < depths[action] < depths[action + 1]:
            later = takewhile(lambda place, own=depths[action]: depths[place] != own, range(action + 1, len(lines)))
            triples += [LineTriple(action, goal) for goal in later]
    return triples


def numbers_in(line: str) -> list[str]:
    """The numbers of the state that a line ends in as they are written, decimals too; none without a state."""
    found = STATE.search(line)
    return _NUMBER.findall(found[1]) if found else []


def _belongs(line: str) -> bool:
    return line.lstrip().startswith(MARK)
