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
    for start, end in _pieces(text):
        if len(steps) == MAX_STEPS:
            break
        piece = text[start:end]
        if piece.strip():
            first = start + len(piece) - len(piece.lstrip())
            steps.append(Step(start=first, end=first + len(piece.strip()), state=len(steps) + 1, legal=True))
    return steps


def _pieces(text: str) -> list[tuple[int, int]]:
    breaks = [match.span() for match in _END.finditer(text)]
    starts = [0, *[end for _, end in breaks]]
    ends = [*[start for start, _ in breaks], len(text)]
    return list(zip(starts, ends, strict=True))
