from __future__ import annotations

from pathlib import Path

import pytest
import torch

from contrastive_reasoning.nonfinite import Diverged, SkippedSteps, keeping_batch


def test_too_many_skipped_steps_raise_with_batch_file(tmp_path: Path) -> None:
    skipped = SkippedSteps(1, of="a head")
    skipped.add("loss is not finite")
    path = tmp_path / "skipped" / "step=000007.rank0.pt"
    named = pytest.raises(Diverged, match=f"^gradient .* 1 steps of a head .*step 7 .*{path}")
    with named, keeping_batch(lambda: {"a": torch.ones(2)}, run=tmp_path, step=7):
        skipped.add("gradient is not finite")
    assert torch.load(path, weights_only=True)["a"].equal(torch.ones(2))
    with pytest.raises(ValueError, match=r"max_skipped_steps.*-1"):
        SkippedSteps(-1)
