"""Several formats, tried in order: one task then reads its set from the hub and the same set from another's files."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.formats.base import Format, MissingColumn, Row


@dataclass(frozen=True, kw_only=True)
class FirstFitting:
    """The first format all of whose columns the row has."""

    formats: Mapping[str, Format]
    """By names of one's own."""

    def __post_init__(self) -> None:
        if not self.formats:
            raise ValueError("formats must name at least one format")

    def __hash__(self) -> int:
        return hash(tuple(self.formats.items()))

    def __call__(self, row: Row, *, id: str) -> Problem:
        missing: list[str] = []
        for format in self.formats.values():
            try:
                return format(row, id=id)
            except MissingColumn as error:
                missing.append(error.column)
        raise MissingColumn(" or ".join(missing), row)
