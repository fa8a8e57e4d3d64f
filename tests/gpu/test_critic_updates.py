"""An online critic's weights and their optimizer's moments are on one device, whoever moved the weights."""

from __future__ import annotations

import pytest
import torch

from tests.unit.callbacks.test_critic_updates import CPU, lessons, met

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_moments_go_where_the_weights_go() -> None:
    made, cuda = lessons(), torch.device("cuda")
    made.train(met(), device=CPU, rank=0, ranks=1)
    made.to(cuda)
    assert made.train(met(), device=cuda, rank=0, ranks=1) is not None
