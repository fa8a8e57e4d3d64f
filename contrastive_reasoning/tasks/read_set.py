"""From the rows of a problem set to its problems; rows that cannot be posed or scored are refused or left out."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Literal, NamedTuple, Protocol, get_args, runtime_checkable

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.formats import BadRow, Format, MissingColumn, Row

OnBad = Literal["refuse", "leave_out"]
CheckGolds = Callable[[Sequence[str]], list[tuple[int, str]]]
"""Gold answers → those that do not verify themselves, by index, with the reason."""
LISTED = 10


@runtime_checkable
class Rows(Protocol):
    """Where the rows of a set come from. Light: nothing is read before it is called."""

    @property
    def source(self) -> str:
        """What error messages call it: a hub's name, or a path."""
        ...

    def at(self, path: str) -> Rows:
        """The same set, read from a local file or folder."""
        ...

    def __call__(self) -> Iterable[Row]: ...


class ReadSet(NamedTuple):
    """What a set holds."""

    problems: tuple[Problem, ...]
    left_out: tuple[str, ...]
    """``row 17: answer is empty``, one per row that is no problem; rows count from 0."""


def read_set(rows: Rows, format: Format, *, prefix: str, check_golds: CheckGolds, on_bad: str) -> ReadSet:
    """Read every row. A problem's id is ``prefix/row``, so that rows which say the same are problems of their own.

    Raises:
        ValueError: for rows without a column that the format reads, a set without problems, or, with
            ``on_bad="refuse"``, rows without a question or an answer and golds that do not verify themselves.
    """
    if on_bad not in get_args(OnBad):
        raise ValueError(f"on_bad must be one of {', '.join(get_args(OnBad))}, got {on_bad!r}")
    posed: dict[int, Problem] = {}
    bad: dict[int, str] = {}
    for index, row in enumerate(rows()):
        try:
            posed[index] = format(row, id=f"{prefix}/{index}")
        except MissingColumn as error:
            raise ValueError(f"{rows.source}: {error}") from error
        except BadRow as error:
            bad[index] = str(error)
    places = list(posed)
    for place, reason in check_golds([problem.answer for problem in posed.values()]):
        bad[places[place]] = reason
    _refuse(rows.source, bad, total=len(posed.keys() | bad.keys()), on_bad=on_bad)
    problems = tuple([problem for index, problem in posed.items() if index not in bad])
    return ReadSet(problems, tuple([f"row {index}: {bad[index]}" for index in sorted(bad)]))


def _refuse(source: str, bad: dict[int, str], *, total: int, on_bad: str) -> None:
    listed = "; ".join(f"row {index}: {bad[index]}" for index in sorted(bad)[:LISTED])
    more = f"; and {len(bad) - LISTED} more" if len(bad) > LISTED else ""
    if total == len(bad):
        raise ValueError(f"{source}: no problem in its {total} rows" + (f" ({listed}{more})" if bad else ""))
    if bad and on_bad == "refuse":
        skip = "rows count from 0, on_bad=leave_out skips them"
        raise ValueError(f"{source}: {len(bad)} of {total} rows cannot be used ({skip}): {listed}{more}")
