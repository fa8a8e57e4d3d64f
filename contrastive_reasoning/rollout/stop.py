"""What ends a completion: an end token, or a stop string watched on the bytes of its row.

A stop string may begin in one token and end in another.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from jaxtyping import Bool, Int
from torch import Tensor


class Ends:
    """Says of each row whether the token it has just written ends it."""

    def __init__(self, end_tokens: Sequence[int], stops: StopStrings | None, device: torch.device) -> None:
        self.tokens = torch.tensor(end_tokens, device=device)
        self.stops = stops

    def ended(self, rows: Sequence[int], tokens: Int[Tensor, " b"]) -> Bool[Tensor, " b"]:
        """Add one token to each of the given rows; True for those that end with it."""
        ended = torch.isin(tokens, self.tokens)
        if self.stops is None:
            return ended
        return ended | torch.tensor(self.stops.completed(rows, tokens.tolist()), device=tokens.device)


class StopStrings:
    """Says of each row when it has just completed one of the strings."""

    def __init__(
        self, strings: Sequence[str], table: Sequence[bytes], *, rows: int, begun: Sequence[Sequence[int]] = ()
    ) -> None:
        """``begun``: tokens that each row begins with, in which a string may begin that ends in what follows."""
        self.strings = [string.encode() for string in strings]
        self.table = table
        self.tails = [b""] * rows
        self.keep = max((len(string) for string in self.strings), default=1) - 1
        for row, tokens in enumerate(begun):
            self.completed([row] * len(tokens), tokens)

    def completed(self, rows: Sequence[int], tokens: Sequence[int]) -> list[bool]:
        """Add one token to each of the given rows; True where a stop string ended within it."""
        return [self._add(row, token) for row, token in zip(rows, tokens, strict=True)]

    def _add(self, row: int, token: int) -> bool:
        piece = self.table[token] if token < len(self.table) else b""
        text = self.tails[row] + piece
        self.tails[row] = text[len(text) - self.keep :] if self.keep < len(text) else text
        return any(string in text for string in self.strings)
