"""From the rows of a problem set to its problems; rows that cannot be posed or scored are refused or left out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal, NamedTuple, get_args

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.formats import Format
from contrastive_reasoning.tasks.rows import BadRow, MissingColumn, Rows

OnBad = Literal["refuse", "leave_out"]
CheckGolds = Callable[[Sequence[str]], list[tuple[int, str]]]
"""Gold answers → those that do not verify themselves, by index, with the reason."""
LISTED = 10


class ReadSet(NamedTuple):
    """What a set holds."""

    problems: tuple[Problem, ...]
    left_out: tuple[str, ...]
    """``line 18: answer is empty``, one per row that is no problem."""


def read_set(rows: Rows, format: Format, *, prefix: str, check_golds: CheckGolds, on_bad: str) -> ReadSet:
    """Read every row. A problem's id is ``prefix/row``, so that equal rows are problems of their own.

    A format may put an id of the row's own there; two rows with the same one are no two problems.

    Raises:
        ValueError: where no row has the columns that the format reads, for a set without problems, or, with
            ``on_bad="refuse"``, for rows that cannot be read, lack a question or an answer, or hold something else
            there, and for golds that do not verify themselves.
    """
    if on_bad not in get_args(OnBad):
        raise ValueError(f"on_bad must be one of {', '.join(get_args(OnBad))}, got {on_bad!r}")
    posed: dict[int, Problem] = {}
    places_of: dict[str, str] = {}
    bad: dict[int, str] = {}
    places: list[str] = []
    lacking: MissingColumn | None = None
    for index, (place, row, flaw) in enumerate(rows()):
        places.append(place)
        try:
            if flaw:
                raise BadRow(flaw)
            problem = format(row, id=f"{prefix}/{index}")
            if (first := places_of.setdefault(problem.id, place)) != place:
                raise BadRow(f"its id {problem.id.removeprefix(prefix + '/')!r} is already that of {first}")
            posed[index] = problem
        except MissingColumn as error:
            lacking, bad[index] = lacking or error, str(error)
        except BadRow as error:
            bad[index] = str(error)
    if lacking and not posed:  # it is not the rows that are wrong
        raise ValueError(f"{rows.source}: {lacking}") from lacking
    kept = list(posed)
    for place, reason in check_golds([problem.answer for problem in posed.values()]):
        bad[kept[place]] = reason
    listed = [f"{places[index]}: {bad[index]}" for index in sorted(bad)]
    _refuse(rows.source, listed, total=len(places), on_bad=on_bad)
    return ReadSet(tuple([problem for index, problem in posed.items() if index not in bad]), tuple(listed))


def _refuse(source: str, bad: Sequence[str], *, total: int, on_bad: str) -> None:
    more = f"; and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
    listed = "; ".join(bad[:LISTED]) + more
    if total == len(bad):
        raise ValueError(f"{source}: no problem in its {total} rows" + (f" ({listed})" if bad else ""))
    if bad and on_bad == "refuse":
        raise ValueError(f"{source}: {len(bad)} of {total} rows cannot be used (on_bad=leave_out skips them): {listed}")
