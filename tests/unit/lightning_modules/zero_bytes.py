"""Bytes that ZeRO leaves on this rank, found in DeepSpeed's engine, and the bytes expected there."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from experiments.plan.memory import most_in_a_share
from lightning_modules.zero import ZeroStrategy


def expected_bytes(module: nn.Module, *, stage: int, ranks: int, whole_elements: int) -> dict[str, int]:
    """The maximum bytes that ZeRO, arXiv:1910.02054, should leave on each rank, for AdamW with fp32 master weights.

    Parameters are whole below stage 3, gradients below stage 2. The optimizer's state (two moments and the master
    weights) is sharded from stage 1 on. Frozen parameters have neither gradients nor state. At stage 2, the gradient of
    a parameter that crosses the border of two shares is whole on both ranks. For a parameter that stage 3 leaves whole,
    a rank also holds its share. (At stage 3 on a GPU, fp32 parameters are their own master weights, and the state is a
    third smaller.)
    """
    sizes = [(one.numel(), one.element_size(), one.requires_grad) for one in module.parameters()]
    weights = sum(count * size for count, size, _ in sizes)
    small = sum(count * size for count, size, _ in sizes if count <= whole_elements)
    learned = [(count, count * size) for count, size, trained in sizes if trained]
    gradients = sum(held for _, held in learned)
    kept = {1: gradients, 2: most_in_a_share(learned, ranks), 3: _share(gradients, ranks)}
    return {
        "parameters": _share(weights, ranks) + small if stage >= 3 else weights,
        "gradients": kept[stage],
        "optimizer": _share(sum(count for count, _ in learned) * 3 * 4, ranks),
    }


def _share(count: int, ranks: int) -> int:
    return -(-count // ranks)


def learned_bytes(strategy: ZeroStrategy) -> dict[str, int]:
    """Bytes of gradients and of the optimizer's state on this rank.

    Valid after a backward and before the optimizer's step; the state exists from the second step on. Master weights
    in fp32 count towards the optimizer if they are not the parameters themselves.
    """
    engine: Any = strategy.deepspeed_engine
    inner = engine.optimizer
    if strategy.stage == 3:
        gradients, masters = inner.grad_partitions_flat_buffer, inner.fp32_partitioned_groups_flat
    else:
        whole = [parameter.grad for parameter in engine.module.parameters()]
        gradients = whole if strategy.stage == 1 else inner.all_grad_tensors
        masters = inner.single_partition_of_fp32_groups
    weights = _parameters(strategy)
    state = _storages([masters, [list(state.values()) for state in inner.optimizer.state.values()]])
    return {
        "gradients": sum(_storages(gradients).values()),
        "optimizer": sum(size for place, size in state.items() if place not in weights),
    }


def parameter_bytes(strategy: ZeroStrategy) -> int:
    """Bytes of parameters on this rank: its shards, and the parameters that are whole beside them.

    Valid between two steps. Within a step, fetched parameters are whole until their last use, and an ``lm_head`` of
    its own until the step ends.
    """
    return sum(_parameters(strategy).values())


def _parameters(strategy: ZeroStrategy) -> dict[int, int]:
    """Memory address → bytes. If only a parameter's shard is kept, ``data`` is a stand-in of at most one number."""
    engine: Any = strategy.deepspeed_engine
    return _storages([[getattr(one, "ds_tensor", None), one.data] for one in engine.module.parameters()])


def _storages(tensors: Any) -> dict[int, int]:
    """Memory address → bytes of all tensors in nested containers; shared memory counts once."""
    if isinstance(tensors, Tensor):
        return {tensors.untyped_storage().data_ptr(): tensors.untyped_storage().nbytes()}
    inside = tensors.values() if isinstance(tensors, dict) else tensors if isinstance(tensors, list | tuple) else ()
    return {place: size for one in inside for place, size in _storages(one).items()}
