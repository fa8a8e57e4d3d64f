"""The packed pass, in which a group shares its prompt, and the padded pass, against one row at a time.

In float32, values agree within 1e-4 nats, as in rollouts. The gradient of a matrix sums over some hundred tokens in
another order, and agrees to 1e-4 relative to its norm.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from contrastive_reasoning.policies import causal_lm
from tests.real.conftest import Written
from tests.unit.policies.test_packed import gradients, log_probs_and_pooled, one_by_one

pytestmark = pytest.mark.real
NATS, SHARE = 1e-4, 1e-4


@pytest.fixture(scope="module")
def given(written: Written) -> dict[str, Any]:
    """Two groups of three rows, of different lengths."""
    batch = written.rollouts
    return {
        "prompt_ids": batch.prompt_ids[:2],
        "prompt_mask": batch.prompt_mask[:2],
        "completion_ids": batch.completion_ids[:6],
        "mask": batch.mask[:6],
        "owner": torch.tensor([0, 0, 0, 1, 1, 1]),
    }


@pytest.fixture(scope="module")
def plain(written: Written, given: dict[str, Any]) -> dict[str, Any]:
    """Log-probs, pooled states and the gradient of a function of both, from rows without padding and full logits."""
    log_probs, states = one_by_one(written.policy, given)
    pooled = torch.stack([rows.mean(0) for rows in states])
    loss = sum((row * factor(row)).sum() for row in log_probs) + pooled.sin().sum()
    return {
        "log_probs": torch.cat(log_probs).detach(),
        "pooled": pooled.detach(),
        "gradient": gradients(written.policy, loss),
    }


def factor(row: torch.Tensor) -> torch.Tensor:
    """Weights that differ between the tokens of a row, like advantages."""
    return torch.arange(1.0, len(row) + 1).cos()


@pytest.mark.parametrize("packs", [True, False], ids=["packed", "padded"])
def test_pass_matches_one_row_at_a_time_in_value_and_gradient(
    packs: bool,
    written: Written,
    given: dict[str, Any],
    plain: dict[str, Any],
    monkeypatch: pytest.MonkeyPatch,
    record_property: pytest.RecordProperty,
) -> None:
    monkeypatch.setattr(causal_lm, "packing_pays", lambda lengths, sizes: packs)
    log_probs, pooled = log_probs_and_pooled(written.policy, **given)
    apart = (log_probs[given["mask"]] - plain["log_probs"]).abs().max().item()
    states = (pooled - plain["pooled"]).norm() / plain["pooled"].norm()
    loss = sum((row[mask] * factor(row[mask])).sum() for row, mask in zip(log_probs, given["mask"], strict=True))
    found = gradients(written.policy, loss + pooled.sin().sum())
    shares = {
        name: ((found[name] - expected).norm() / expected.norm()).item() for name, expected in plain["gradient"].items()
    }
    record_property("largest difference of log-probs", apart)
    record_property("pooled states", states.item())
    record_property("largest share of a gradient", max(shares.values()))
    assert apart <= NATS
    assert states <= SHARE
    assert min(expected.norm() for expected in plain["gradient"].values()) > 0
    assert max(shares.values()) <= SHARE, max(shares, key=lambda name: shares[name])
