"""Given lengths: the end token exactly at a row's last token, by a loop over places."""

from __future__ import annotations

import torch

from benchmarks.peers.conversation import GivenLengths, processors

LENGTHS, PROMPT, END, LONGEST = [1, 3, 4, 2], 5, 2, 4


def test_a_row_can_end_only_at_its_length_and_the_longest_is_cut() -> None:
    given = GivenLengths(LENGTHS, prompt_tokens=PROMPT, end=END, longest=LONGEST)
    for place in range(1, LONGEST + 1):
        scores = given(torch.zeros(len(LENGTHS), PROMPT + place - 1, dtype=torch.long), torch.randn(len(LENGTHS), 6))
        allowed = scores.isfinite()
        for row, length in enumerate(LENGTHS):
            ends = place == length and length < LONGEST
            assert allowed[row].tolist() == [(token == END) == ends for token in range(6)]


def test_nothing_is_forced_where_no_completion_ends_by_itself() -> None:
    assert processors({"lengths": None}, prompt_tokens=PROMPT, end=END) == []
