"""The optimizer's moments of an online critic stay on the device of its weights after the weights have moved."""

from __future__ import annotations

from math import isfinite

import pytest
import torch

from tests.unit.callbacks.test_critic_updates import CPU, met, updates

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def test_optimizer_moments_move_to_the_device_of_the_weights() -> None:
    made, cuda = updates(), torch.device("cuda")
    made.train(met(), device=CPU, rank=0, ranks=1)
    made.to(cuda)
    loss = made.train(met(), device=cuda, rank=0, ranks=1)
    assert loss is not None
    assert isfinite(loss)
    moments = [value for state in made.state_dict()["optimizer"]["state"].values() for value in state.values()]
    assert {value.device.type for value in moments if value.ndim} == {"cuda"}
