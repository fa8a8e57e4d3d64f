"""Which completions of a batch are shown: as many correct as incorrect ones, spread over the batch."""

from __future__ import annotations

from collections.abc import Sequence


def mixed(correct: Sequence[bool], count: int) -> list[int]:
    """At most ``count`` rows in the order of the batch: half of them correct, half not, or what there is.

    The same verdicts choose the same rows. Those of one kind are taken in even strides, so that many groups show.
    """
    right = [row for row, ok in enumerate(correct) if ok]
    wrong = [row for row, ok in enumerate(correct) if not ok]
    rights = min(len(right), max(count // 2, count - len(wrong)))
    return sorted([*_strided(right, rights), *_strided(wrong, count - rights)])


def _strided(rows: Sequence[int], count: int) -> list[int]:
    count = min(count, len(rows))
    return [rows[k * len(rows) // count] for k in range(count)]
