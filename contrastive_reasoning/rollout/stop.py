"""Stop strings, watched on the bytes of each row: a string may begin in one token and end in another."""

from __future__ import annotations

from collections.abc import Sequence


class StopStrings:
    """Says of each row when it has just completed one of the strings."""

    def __init__(self, strings: Sequence[str], table: Sequence[bytes], *, rows: int) -> None:
        self.strings = [string.encode() for string in strings]
        self.table = table
        self.tails = [b""] * rows
        self.keep = max((len(string) for string in self.strings), default=1) - 1

    def completed(self, rows: Sequence[int], tokens: Sequence[int]) -> list[bool]:
        """Add one token to each of the given rows; True where a stop string ended within it."""
        return [self._add(row, token) for row, token in zip(rows, tokens, strict=True)]

    def _add(self, row: int, token: int) -> bool:
        piece = self.table[token] if token < len(self.table) else b""
        text = self.tails[row] + piece
        self.tails[row] = text[len(text) - self.keep :] if self.keep < len(text) else text
        return any(string in text for string in self.strings)
