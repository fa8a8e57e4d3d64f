from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.policies.pooling import last_pool, mean_pool

HIDDEN = torch.tensor([[[1.0, 0.0], [3.0, 2.0], [9.0, 9.0]], [[5.0, 5.0], [7.0, 7.0], [9.0, 1.0]]])
MASK = torch.tensor([[True, True, False], [False, True, True]])


def test_mean_pool_and_last_pool_ignore_masked_tokens() -> None:
    assert_close(mean_pool(HIDDEN, MASK), torch.tensor([[2.0, 1.0], [8.0, 4.0]]))
    assert_close(mean_pool(HIDDEN, torch.zeros_like(MASK)), torch.zeros(2, 2))
    assert_close(last_pool(HIDDEN, MASK), torch.tensor([[3.0, 2.0], [9.0, 1.0]]))
    with pytest.raises(ValueError, match="token"):
        last_pool(HIDDEN, torch.zeros_like(MASK))
