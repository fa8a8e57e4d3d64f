"""Sharded parameters on several ranks: gathering them for a pass, and the bytes that each rank should hold.

Trained parameters are sharded by ZeRO, frozen ones by torch's own ``fully_shard``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import Any

import torch
from torch import distributed, nn

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_hooks", "_backward_pre_hooks")
"""Attributes in which torch stores hooks, ZeRO's too: they fetch shards before a pass and release them after it."""


def is_sharded(module: object) -> bool:
    return isinstance(module, nn.Module) and any(hasattr(parameter, "ds_id") for parameter in module.parameters())


@contextmanager
def gathered(module: Any) -> Iterator[None]:
    """Gathers every parameter on every rank, so that passes inside fetch nothing. Every rank must enter it.

    Weights must not be changed inside: the changes are discarded.
    """
    if not is_sharded(module):
        yield
        return
    from deepspeed import zero  # slow to import, and needed only for sharding

    with zero.GatheredParameters(list(module.parameters())), _without_hooks(module):
        yield


def shard_layers(backbone: nn.Module, device: torch.device) -> None:
    """Keeps on each rank its share of every decoder layer of a frozen model; a pass gathers one layer at a time.

    Parameters outside the layers stay whole: the embedding and the projection to the vocabulary, which may be one
    matrix, are also read outside of passes. Results do not change. Every rank must make the same number of passes. On
    one process, or for a model that is sharded already, nothing happens.

    Args:
        backbone: the decoder, with its list of ``layers``.
        device: where it computes; the layers are moved there one by one, and each is sharded at once.

    Raises ValueError if a parameter is trained, or if there are no ``layers``.
    """
    layers = getattr(backbone, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise ValueError(f"only a model with a list of `layers` can be sharded, and {type(backbone).__name__} has none")
    if any(parameter.requires_grad for parameter in backbone.parameters()):
        raise ValueError("only a frozen model can be sharded by its layers: no optimizer would know of its shards")
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return
    from torch.distributed.device_mesh import init_device_mesh  # slow to import, and needed only for sharding
    from torch.distributed.fsdp import FSDPModule, fully_shard

    if isinstance(backbone, FSDPModule):
        return
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    whole = set(backbone.parameters()) - set(layers.parameters())
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    # one root, so that a layer is fetched while the one before computes
    fully_shard(backbone, mesh=mesh, reshard_after_forward=True, ignored_params=whole)


@contextmanager
def _without_hooks(module: nn.Module) -> Iterator[None]:
    """Removes ZeRO's hooks within: in a pass they would release the gathered parameters."""
    kept: list[tuple[nn.Module, str, Any]] = []
    for part in module.modules():
        for name in HOOKS:
            hooks = getattr(part, name)
            kept.append((part, name, hooks))
            # a partial has no module of its own
            modules = {key: str(getattr(getattr(hook, "func", hook), "__module__", "")) for key, hook in hooks.items()}
            others = {key: hook for key, hook in hooks.items() if not modules[key].startswith("deepspeed")}
            setattr(part, name, OrderedDict(others))
    try:
        yield
    finally:
        for part, name, hooks in kept:
            setattr(part, name, hooks)


def expected_bytes(module: nn.Module, *, stage: int, ranks: int, whole_elements: int) -> dict[str, int]:
    """The maximum bytes that ZeRO, arXiv:1910.02054, should leave on each rank, for AdamW with fp32 master weights.

    Parameters are whole below stage 3, gradients below stage 2. The optimizer's state (two moments and the master
    weights) is sharded from stage 1 on. Frozen parameters have neither gradients nor state. At stage 2, the gradient of
    a parameter that crosses the border of two shares is whole on both ranks. For a parameter that stage 3 leaves whole,
    a rank also holds its share. (At stage 3 on a GPU, fp32 parameters are their own master weights, and the state is a
    third smaller.)

    Args:
        module: the module; its parameters may be whole or in shards.
        stage: 1, 2 or 3.
        ranks: the number of ranks that share them.
        whole_elements: parameters of at most this many numbers stay whole at stage 3.
    """
    sizes = [
        (int(getattr(parameter, "ds_numel", parameter.numel())), parameter.element_size(), parameter.requires_grad)
        for parameter in module.parameters()
    ]
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


def most_in_a_share(sizes: Sequence[tuple[int, int]], ranks: int) -> int:
    """Bytes of the parameters that lie at least partly in a rank's share, for the rank with most; 0 without parameters.

    ZeRO's stages 1 and 2 concatenate all parameters and cut them into even shares; the cuts may go through parameters.
    At stage 2 a rank keeps the whole gradient of each parameter of which it has a part:

        rank 0  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓┊░░░░░
        rank 1                 ▒▒▒▒▒▒▒┊▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
                └ embedding ──┘└ a matrix ─┘└ others ─────┘

    That adds little if a share has many matrices, and much if an embedding is larger than a share.

    Args:
        sizes: for each parameter its count of numbers and their total bytes.
        ranks: the number of ranks that share them.
    """
    share = 2 * -(-sum(count for count, _ in sizes) // (2 * ranks))  # DeepSpeed makes them even numbers
    ends = list(accumulate(count for count, _ in sizes))
    spans = [(end - count, end, held) for end, (count, held) in zip(ends, sizes, strict=True)]
    firsts = [rank * share for rank in range(ranks)]
    return max(sum(held for start, end, held in spans if start < first + share and end > first) for first in firsts)
