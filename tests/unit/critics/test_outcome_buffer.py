from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.critics.outcome_buffer import OutcomeBuffer, Outcomes


def batch(*goals: int) -> Outcomes:
    numbers = torch.tensor(goals)
    return Outcomes(
        state_actions=numbers[:, None].repeat(1, 6), goals=numbers, share=numbers / 10, visits=numbers + 1.0
    )


def test_buffer_keeps_last_batches_and_draws_whole_rows() -> None:
    buffer = OutcomeBuffer(batches=2)
    for part in (batch(1, 2), batch(3), batch(4, 5, 6)):
        buffer.add(part)
    assert len(buffer) == 4
    drawn = buffer.draw(400, np.random.default_rng(0))
    counts = torch.bincount(drawn.goals)[3:]
    assert (counts > 60).all(), "states are drawn uniformly, whatever the size of their batch"
    assert counts.sum() == 400
    for name, column in vars(batch(*drawn.goals.tolist())).items():
        assert torch.equal(getattr(drawn, name), column), name
    assert_close(vars(buffer.draw(5, np.random.default_rng(3))), vars(buffer.draw(5, np.random.default_rng(3))))


def test_buffer_is_restored_from_saved_tensors(tmp_path: Path) -> None:
    buffer, restored = OutcomeBuffer(batches=2), OutcomeBuffer(batches=2)
    for part in (batch(1, 2), batch(3), batch(4)):
        buffer.add(part)
    torch.save(buffer.state_dict(), tmp_path / "buffer.pt")
    restored.load_state_dict(torch.load(tmp_path / "buffer.pt", weights_only=True))
    for each in (buffer, restored):
        each.add(batch(7))
    assert_close(restored.state_dict(), buffer.state_dict(), rtol=0, atol=0)


def test_empty_buffer_and_size_below_one_raise() -> None:
    with pytest.raises(ValueError, match="empty"):
        OutcomeBuffer(batches=1).draw(1, np.random.default_rng(0))
    with pytest.raises(ValueError, match="buffer_batches"):
        OutcomeBuffer(batches=0)
