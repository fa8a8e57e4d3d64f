"""A prompt of one's own around the columns of a row: ``"How many letters has {word}?"``."""

from __future__ import annotations

import re
from dataclasses import dataclass

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.formats.base import Row
from contrastive_reasoning.tasks.formats.columns import text_at

_PLACE = re.compile(r"\{\{|\}\}|\{([A-Za-z_][\w.]*)\}")
"""A column in braces; doubled braces are single ones of the text. ``\\boxed{}`` stays as it is."""


@dataclass(frozen=True, kw_only=True)
class RowTemplate:
    """The template with the row's values in it; the whole row is the fields of the problem."""

    prompt: str
    """The template; a nested column by its dotted path."""
    answer: str | None
    """Column of the gold answer; None where there is none: the problem's is then empty."""
    id: str | None
    """Column that tells the rows apart, no two of which may hold the same; None: the row's place in the file."""

    def __post_init__(self) -> None:
        if not any(self.columns):
            raise ValueError(
                f"format.prompt must name a column in braces, as in 'Add up: {{numbers}}', got {self.prompt!r}"
            )

    @property
    def columns(self) -> list[str]:
        return [match[1] for match in _PLACE.finditer(self.prompt) if match[1]]

    def __call__(self, row: Row, *, id: str) -> Problem:
        if self.id is not None:
            id = f"{id.rpartition('/')[0]}/{text_at(row, self.id)}"
        return Problem(
            id=id,
            prompt=_PLACE.sub(lambda match: text_at(row, match[1]) if match[1] else match[0][0], self.prompt),
            answer="" if self.answer is None else text_at(row, self.answer),
            fields=row,
        )
