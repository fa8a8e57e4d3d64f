"""Triples extracted from a written search by its indentation, as in the critic paper's later code.

A line is an action if it is indented more than the line before it and less than the line after it. Its state is all
lines before it. Its goals are the lines after it, up to the next line with the same indentation:

    0  |- Pick …
    1    |- Try …             action; goals 2 and 3
    2      |- Pick …          action; goals 3 and 4
    3        |- Try …
    4    |- Try …             not deeper than 3; ends the goals of 1, and those of 2 end with the search

LongProc's searches have this indentation. In the annotated searches of that code's own prompt no line is an action,
because a level begins with two lines of the same indentation.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import NamedTuple

MARK = "|-"
"""The beginning of each line of a search, after its indentation."""
STATE = re.compile(r"### Current State: \[([0-9., ]{1,200})\]")
_NUMBER = re.compile(r"[0-9]{1,12}(?:\.[0-9]{1,12})?")


class LineTriple(NamedTuple):
    """Line indices in a search: an action, whose state is all lines before it, and a goal after it."""

    action: int
    goal: int


def search_lines(text: str) -> list[str]:
    """The first consecutive lines in a completion that begin with ``|-``, with their indentation; empty if none do."""
    lines = text.split("\n")
    first = next((place for place, line in enumerate(lines) if _belongs(line)), len(lines))
    return list(takewhile(_belongs, lines[first:]))


def line_triples(lines: Sequence[str]) -> list[LineTriple]:
    """All pairs of an action of a search and one of its goals, in line order."""
    depths = [len(line) - len(line.lstrip()) for line in lines]
    triples = []
    for action in range(1, len(lines) - 1):
        if depths[action - 1] < depths[action] < depths[action + 1]:
            later = takewhile(lambda place, own=depths[action]: depths[place] != own, range(action + 1, len(lines)))
            triples += [LineTriple(action, goal) for goal in later]
    return triples


def numbers_in(line: str) -> list[str]:
    """The numbers, as written, of the first state annotated in a line, decimals included; empty without a state."""
    found = STATE.search(line)
    return _NUMBER.findall(found[1]) if found else []


def _belongs(line: str) -> bool:
    return line.lstrip().startswith(MARK)
