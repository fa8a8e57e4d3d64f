"""The steps of an answer in prose: its sentences and lines, with their characters, so that credit can land on them."""

from __future__ import annotations

import re

from contrastive_reasoning.tasks.base import Step

MAX_STEPS = 5_000
"""Steps that are read; what follows them has none."""

_END = re.compile(r"\n+|(?<=[.!?])[ \t]+(?=[A-Z0-9$\\(\[*])")
"""A line's end; or the space between a full stop and what looks like the beginning of a sentence, formulas included."""


def sentence_steps(text: str) -> list[Step]:
    """Each sentence or line that is not blank, without the space around it; its state is how many steps were written.

    ``"2+3 = 5. So 5·2 = 10.\\nThe answer is 10."`` has three steps, with the states 1, 2 and 3.
    """
    steps: list[Step] = []
    for start, end, settled in _pieces(text):
        if len(steps) == MAX_STEPS:
            break
        piece = text[start:end]
        if piece.strip():
            first, state = start + len(piece) - len(piece.lstrip()), len(steps) + 1
            steps.append(Step(start=first, end=first + len(piece.strip()), state=state, legal=True, settled=settled))
    return steps


def _pieces(text: str) -> list[tuple[int, int, int]]:
    """Where each piece begins and ends, and one past the character that shows it."""
    breaks = list(_END.finditer(text))
    starts = [0, *[found.end() for found in breaks]]
    ends = [*[found.start() for found in breaks], len(text)]
    shown = [found.start() + 1 if found[0][0] == "\n" else found.end() + 1 for found in breaks]
    return list(zip(starts, ends, [*shown, len(text) + 1], strict=True))
