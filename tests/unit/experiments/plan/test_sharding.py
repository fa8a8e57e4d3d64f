from __future__ import annotations

import pytest

from experiments.plan.sharding import by_name, sharding_of


@pytest.mark.parametrize(
    ("name", "stage", "offload"),
    [
        ("cpu", 0, False),
        ("gpu", 0, False),
        ("ddp", 0, False),
        ("zero1", 1, False),
        ("zero2", 2, False),
        ("zero3", 3, False),
        ("zero3_offload", 3, True),
    ],
)
def test_the_choice_of_the_trainer_says_the_stage(name: str, stage: int, offload: bool) -> None:
    found = by_name(name, 8)
    assert (found.stage, found.offload_optimizer, found.offload_parameters) == (stage, offload, offload)


def test_a_strategy_that_says_its_stage_is_believed_before_the_name() -> None:
    strategy = {"stage": 2, "offload_optimizer": True, "offload_parameters": False, "bucket_elements": 5}
    found = sharding_of("mine", {"devices": 4, "num_nodes": 2, "strategy": strategy}, gpus=None)
    assert (found.devices, found.stage, found.offload_optimizer, found.offload_parameters) == (8, 2, True, False)
    assert found.bucket_elements == 5


@pytest.mark.parametrize(
    ("node", "gpus", "devices"),
    [
        ({"devices": 1, "num_nodes": 1}, None, 1),
        ({"devices": 4, "num_nodes": 2}, None, 8),
        ({"devices": "4"}, None, 4),
        ({"devices": [0, 2, 3]}, None, 3),
        ({"devices": "0,2"}, None, 2),
        ({"devices": "auto"}, None, 1),
        ({"devices": 4, "num_nodes": 2}, 16, 16),
    ],
)
def test_devices_are_the_trainers_or_those_asked_for(node: dict[str, object], gpus: int | None, devices: int) -> None:
    assert sharding_of("gpu", node, gpus=gpus).devices == devices


def test_an_unknown_stage_is_refused() -> None:
    with pytest.raises(ValueError, match="trainer=zero4: a ZeRO stage is 0, 1, 2 or 3, got 4"):
        by_name("zero4", 2)
