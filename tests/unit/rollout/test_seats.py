"""Rows go to their prompt's table and come back."""

from __future__ import annotations

import pytest
import torch

from contrastive_reasoning.rollout.seats import Seats


@pytest.mark.parametrize("owner", [[0, 0, 1, 1], [0, 1, 0, 2, 0], [1], [2, 0]])
def test_each_row_sits_at_its_prompt_and_comes_back(owner: list[int]) -> None:
    rows = torch.arange(len(owner) * 6.0).view(len(owner), 2, 3, 1)  # two key heads, three queries each
    seats = Seats(owner, 3 if len(owner) != 4 else 2, rows.device)
    seated = seats.gather(rows)
    assert seated.shape == (seats.prompts, 2, seats.size * 3, 1)
    for row, prompt in enumerate(owner):
        seat = sum(other == prompt for other in owner[:row])
        assert torch.equal(seated[prompt, :, 3 * seat : 3 * seat + 3], rows[row])
    assert torch.equal(seats.scatter(seated), rows)
