"""Which rows join a running decode: in order, as soon as the budget has room for what they reserve.

    reserved  =  prompts held · longest of them  +  rows · tokens of the longest completion

A prompt is held from the joining of its first row until its last row has left, so it is read once.
"""

from __future__ import annotations

from collections.abc import Sequence


class Schedule:
    """Rows p·G … p·G+G−1 belong to prompt p; they join in that order."""

    def __init__(self, lengths: Sequence[int], *, limit: int, group_size: int, budget: int) -> None:
        self.lengths = list(lengths)
        self.limit = limit
        self.group_size = group_size
        self.budget = budget
        self.next_row = 0

    @property
    def waiting(self) -> bool:
        return self.next_row < len(self.lengths) * self.group_size

    def held(self, running: Sequence[int]) -> list[int]:
        """The prompts of the running rows, and of a group of which some rows wait while others have joined."""
        begun = [self.next_row] if self.waiting and self.next_row % self.group_size else []
        return sorted({row // self.group_size for row in [*running, *begun]})

    def reserved(self, running: Sequence[int]) -> int:
        """Tokens of the keys and values held while these rows run."""
        prompts = self.held(running)
        return len(prompts) * max((self.lengths[p] for p in prompts), default=0) + len(running) * self.limit

    def join(self, running: Sequence[int]) -> list[int]:
        """The rows that now join those running: as many as fit, one at least where nothing runs."""
        rows, joined = list(running), []
        while self.waiting:
            row, self.next_row = self.next_row, self.next_row + 1
            if rows and self.reserved([*rows, row]) > self.budget:
                self.next_row = row
                break
            rows.append(row)
            joined.append(row)
        return joined
