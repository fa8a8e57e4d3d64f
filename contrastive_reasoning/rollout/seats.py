"""Rows brought together by prompt, and back: P tables of G seats, where some seats may stay empty.

rows of prompts  0 1 0 2 0      tables   0: rows 0 2 4     1: row 1 · ·     2: row 3 · ·
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Float
from torch import Tensor


class Seats:
    """Seats for rows of the given prompts, out of P. An empty seat holds row 0, whose result there is not read."""

    def __init__(self, owner: Sequence[int], prompts: int, device: torch.device) -> None:
        taken, seats = [0] * prompts, []
        for prompt in owner:
            seats.append((prompt, taken[prompt]))
            taken[prompt] += 1
        self.prompts, self.size = prompts, max(taken)
        flat = [prompt * self.size + seat for prompt, seat in seats]
        at = [0] * (prompts * self.size)
        for row, seat in enumerate(flat):
            at[seat] = row
        in_order = flat == list(range(prompts * self.size))
        self.seat_of_row = None if in_order else torch.tensor(flat, device=device)
        self.row_at_seat = None if in_order else torch.tensor(at, device=device)

    def gather(self, rows: Float[Tensor, "b K r e"]) -> Float[Tensor, "P K Gr e"]:
        """The r queries of each row's key heads, those of one prompt in one matrix per key head."""
        if self.row_at_seat is not None:
            rows = rows.index_select(0, self.row_at_seat)
        seated = rows.unflatten(0, (self.prompts, self.size)).transpose(1, 2)
        return seated.flatten(2, 3)

    def scatter(self, seated: Float[Tensor, "P K Gr e"]) -> Float[Tensor, "b K r e"]:
        """Back to the rows."""
        rows = seated.unflatten(2, (self.size, -1)).transpose(1, 2).flatten(0, 1)
        return rows if self.seat_of_row is None else rows.index_select(0, self.seat_of_row)
