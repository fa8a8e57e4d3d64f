"""Sharding of training: bytes of the states on one of four devices, computed by hand for a learner of one layer."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from contrastive_reasoning.policies.pass_cost import DecoderSize, Weights
from contrastive_reasoning.policies.shape import ModelShape
from experiments.plan.memory import (
    MILD_TO_STRONG,
    Learner,
    by_name,
    most_in_a_share,
    sharded_layers,
    sharding_of,
    states,
)
from tests.unit.experiments.plan.learners import whole_on_cpu

SHAPE = ModelShape(
    model_type="llama",
    hidden_size=8,
    intermediate_size=16,
    num_hidden_layers=1,
    num_attention_heads=2,
    num_key_value_heads=1,
    head_dim=4,
    vocab_size=20,
    max_position_embeddings=32,
    tie_word_embeddings=True,
)
N = 2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16 + 2 * 8 + 20 * 8 + 8  # attention, product, norms, vocabulary, last norm
SECOND = 64 + 32 + 32 + 64 + 128
"""From q_proj to gate_proj: the second of four shares of 190 parameters contains a part of both, and has the most."""
FULL = replace(whole_on_cpu(SHAPE), compute_bytes=2, on_cpu=False)
HALF = replace(FULL, weight_bytes=2)
R = 2 * (8 + 8)  # of A and B at q_proj
ADAPTED = replace(HALF, adapters=R)


@pytest.mark.parametrize(
    ("learner", "trainer", "expected"),
    [
        (FULL, "gpu", (4 * N, 4 * N, 8 * N)),
        (FULL, "ddp", (4 * N, 4 * N, 8 * N)),
        (FULL, "zero1", (4 * N, 4 * N, 12 * N // 4)),
        (FULL, "zero2", (4 * N, 4 * SECOND, 12 * N // 4)),
        (FULL, "zero3", (4 * N // 4, 4 * N // 4, 8 * N // 4)),  # fp32 weights need no copy in stage 3
        (FULL, "zero3_offload", (0, 0, 0)),
        (HALF, "gpu", (2 * N, 2 * N, 4 * N)),  # torch keeps moments in the dtype of the weights
        (HALF, "zero1", (2 * N, 2 * N, 12 * N // 4)),
        (HALF, "zero2", (2 * N, 2 * SECOND, 12 * N // 4)),
        (HALF, "zero3", (2 * N // 4, 2 * N // 4, 12 * N // 4)),
        (ADAPTED, "gpu", (2 * N + 4 * R, 4 * R, 8 * R)),
        (replace(FULL, frozen=True), "zero3", (4 * N, 0, 0)),  # only trained weights are sharded
    ],
)
def test_states_equal_values_computed_by_hand(learner: Learner, trainer: str, expected: tuple[int, int, int]) -> None:
    found = states(learner, by_name(trainer, 4))
    assert (found.weights, found.gradients, found.optimizer) == expected


def test_only_zero3_gathers_weights_for_a_pass() -> None:
    found = states(FULL, by_name("zero3", 4))
    assert found.weights + found.gathered == 4 * N
    assert states(FULL, by_name("zero2", 4)).gathered == 0


def test_sharded_layers_shards_layers_but_not_embeddings() -> None:
    frozen = replace(FULL, frozen=True)
    ends = 4 * (20 * 8 + 8)
    layer = 4 * N - ends
    assert sharded_layers(frozen, 1) == (4 * N, 0)
    assert sharded_layers(frozen, 4) == (ends + layer // 4, layer)
    deep = replace(SHAPE, num_hidden_layers=8, tie_word_embeddings=False)
    assert sharded_layers(replace(frozen, shape=deep), 4) == (ends + 4 * 20 * 8 + 2 * layer, 3 * layer)


def slow_most_in_a_share(sizes: list[tuple[int, int]], ranks: int) -> int:
    """Assigns every number to a rank by itself; a rank holds each parameter of which it has a number."""
    owners = [index for index, (count, _) in enumerate(sizes) for _ in range(count)]
    while len(owners) % (2 * ranks):
        owners.append(-1)  # padding
    share = len(owners) // ranks
    return max(
        sum(sizes[index][1] for index in set(owners[rank * share : (rank + 1) * share]) - {-1}) for rank in range(ranks)
    )


def test_most_in_a_share_equals_slow_count() -> None:
    rng = random.Random(0)
    for _ in range(100):
        sizes = [
            (count, count * rng.choice((2, 4))) for count in (rng.randint(1, 40) for _ in range(rng.randint(1, 9)))
        ]
        ranks = rng.randint(1, 8)
        assert most_in_a_share(sizes, ranks) == slow_most_in_a_share(sizes, ranks), (sizes, ranks)


def test_exchange_buffer_size_depends_on_trainer() -> None:
    assert states(FULL, by_name("gpu", 1)).exchange == 0
    assert states(replace(FULL, frozen=True), by_name("zero3", 4)).exchange == 0
    assert states(FULL, by_name("ddp", 2)).exchange == 4 * N
    assert states(FULL, replace(by_name("zero2", 2), bucket_elements=100)).exchange == 2 * 100 * 4
    assert states(FULL, by_name("zero2", 2)).exchange == 2 * N * 4, "never larger than the gradients"


def test_by_name_reads_stage_and_offload_from_trainer_name() -> None:
    found = [by_name(name, 8) for name in ("cpu", "gpu", *MILD_TO_STRONG)]
    assert [sharding.stage for sharding in found] == [0, 0, 0, 1, 2, 3, 3]
    assert [sharding.offload_optimizer and sharding.offload_parameters for sharding in found] == [False] * 6 + [True]
    with pytest.raises(ValueError, match="trainer=zero4"):
        by_name("zero4", 2)


def test_sharding_of_prefers_strategy_settings_over_name() -> None:
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
        ({"devices": [2]}, None, 1),
        ({"devices": "auto", "accelerator": "cpu"}, None, 1),
        ({"devices": 4, "num_nodes": 2}, 16, 16),
    ],
)
def test_sharding_of_counts_devices_of_trainer_or_gpus_argument(
    node: dict[str, object], gpus: int | None, devices: int
) -> None:
    assert sharding_of("gpu", node, gpus=gpus).devices == devices


def test_decoder_size_trains_only_adapters() -> None:
    layer, adapters = 2 * 8 * 8 + 2 * 8 * 4 + 3 * 8 * 16, R
    assert ADAPTED.decoder_size == DecoderSize(
        layers=Weights(total=layer + adapters, trained=adapters),
        projection=Weights(total=8 * 20, trained=0),
        attention=8,
    )
