"""What ``shard_layers`` requires; its results are tested on two ranks."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from contrastive_reasoning.policies.sharding import shard_layers
from tests.unit.lightning_modules import grpo_kit


def test_shard_layers_requires_frozen_model_with_layers() -> None:
    backbone, device = grpo_kit.policy().backbone, torch.device("cpu")
    with pytest.raises(ValueError, match="frozen"):
        shard_layers(backbone, device)
    with pytest.raises(ValueError, match=r"layers.*Linear"):
        shard_layers(nn.Linear(2, 2).requires_grad_(False), device)
    before = dict(backbone.requires_grad_(False).named_parameters())
    shard_layers(backbone, device)
    assert all(parameter is before[name] for name, parameter in backbone.named_parameters()), "there is one process"
