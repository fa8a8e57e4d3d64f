from __future__ import annotations

import pytest
import torch

from lightning_modules.grpo import Reference
from tests.unit.lightning_modules.grpo_kit import Metrics, fit, module, objective, policy, weights

HOST, DEVICE = torch.device("cpu"), torch.device("cpu", 0)


@pytest.mark.parametrize(
    ("offload", "expected"), [(True, [HOST, "asked", DEVICE, HOST]), (False, [DEVICE, "asked", DEVICE])]
)
def test_an_offloaded_reference_is_on_the_device_only_while_it_is_asked(offload: bool, expected: list[object]) -> None:
    reference = Reference(policy(seed=2), offload=offload)
    moves: list[object] = []
    reference.policy.to = lambda device: moves.append(torch.device(device))
    reference.place(DEVICE)
    moves.append("asked")
    with reference.on_device():
        pass
    assert moves == expected


def test_offloading_changes_no_number() -> None:
    runs = []
    for offload in (False, True):
        metrics = Metrics()
        trained = module(reference=policy(seed=2), offload_reference=offload, objective=objective(kl_weight=0.1))
        fit(trained, 2, metrics)
        runs.append((weights(trained), metrics.steps[-1]["train/objective/kl"]))
    assert torch.equal(runs[0][0], runs[1][0])
    assert runs[0][1] == runs[1][1] > 0
