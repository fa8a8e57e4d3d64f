"""Stop strings over token borders, against searching the whole text after each token."""

from __future__ import annotations

import random

from contrastive_reasoning.rollout.stop import StopStrings

TABLE = [b"a", b"b", b"ab", b"aab", "é".encode()[:1], "é".encode()[1:], b""]


def test_a_stop_string_is_seen_when_its_last_byte_is_written() -> None:
    rng = random.Random(0)
    for _ in range(200):
        strings = rng.sample(["bab", "é", "aaa", "ba"], k=2)
        watch, text, seen = StopStrings(strings, TABLE, rows=2), b"", False
        for _ in range(12):
            token = rng.randrange(len(TABLE) + 1)  # one id is beyond the table
            text += TABLE[token] if token < len(TABLE) else b""
            found = watch.completed([1], [token])[0]
            seen = seen or found
            assert seen == any(string.encode() in text for string in strings)


def test_rows_are_watched_apart() -> None:
    watch = StopStrings(["ab"], TABLE, rows=3)
    assert watch.completed([0, 1, 2], [0, 1, 2]) == [False, False, True]
    assert watch.completed([0, 1], [1, 1]) == [True, False]
