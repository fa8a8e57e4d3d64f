from __future__ import annotations

import pytest
import torch

from contrastive_reasoning.policies import log_probs
from contrastive_reasoning.policies.log_probs import liger_log_probs, require_liger, token_log_probs


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_liger_log_probs_on_cpu_equal_token_log_probs(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(5, 8, generator=generator), torch.randn(11, 8, generator=generator)
    targets = torch.tensor([0, 10, 3, 3, 7])
    expected = token_log_probs(hidden, weight, targets, temperature=temperature, chunk=2)
    assert torch.equal(liger_log_probs(hidden, weight, targets, temperature=temperature, chunk=2), expected)


def test_liger_log_probs_rejects_zero_temperature() -> None:
    with pytest.raises(ValueError, match="temperature"):
        liger_log_probs(torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([0]), temperature=0.0, chunk=1)


@pytest.mark.parametrize(("found", "named"), [(False, r"\[liger\]"), (True, "CUDA")])
def test_require_liger_without_extra_or_cuda_raises(found: bool, named: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(log_probs, "find_spec", lambda name: name if found else None)
    with pytest.raises(ValueError, match=rf"policy\.kernels=liger.*{named}"):
        require_liger()
