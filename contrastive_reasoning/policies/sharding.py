"""Parameters in shards on several ranks: gathered while they are read, and the bytes that each should hold.

What is trained is spread by ZeRO, what is frozen by torch's own ``fully_shard``.
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
"""Where torch keeps what ZeRO has hung on a module: it fetches shards before a pass and lets them go after it."""


def is_sharded(module: object) -> bool:
    return isinstance(module, nn.Module) and any(hasattr(parameter, "ds_id") for parameter in module.parameters())


@contextmanager
def gathered(module: Any) -> Iterator[None]:
    """Within it every parameter is whole, on every rank, and passes fetch nothing. Every rank must enter it.

    Weights must not be changed within: they are thrown away.
    """
    if not is_sharded(module):
        yield
        return
    from deepspeed import zero  # heavy, and only where something is sharded

    with zero.GatheredParameters(list(module.parameters())), _without_hooks(module):
        yield


def shard_layers(backbone: nn.Module, device: torch.device) -> None:
    """Leave each rank its share of every decoder layer of a frozen model; a pass gathers a layer and lets go of it.

    What is not in a layer stays whole: the embedding and the projection to the vocabulary, which may be one matrix, are
    read outside of passes too. Numbers do not change. Every rank must make the same number of passes. On one process,
    or where it was done before, nothing happens.

    Args:
        backbone: the decoder, with its list of ``layers``.
        device: where it computes; the layers are moved there one by one, each to be cut at once.

    Raises ValueError where something in it is trained, or it has no ``layers``.
    """
    layers = getattr(backbone, "layers", None)
    if not isinstance(layers, nn.ModuleList):
        raise ValueError(f"only a model with a list of `layers` can be sharded, and {type(backbone).__name__} has none")
    if any(parameter.requires_grad for parameter in backbone.parameters()):
        raise ValueError("only a frozen model can be sharded by its layers: no optimizer would know of its shards")
    if not distributed.is_initialized() or distributed.get_world_size() == 1:
        return
    from torch.distributed.device_mesh import init_device_mesh  # heavy, and only where something is sharded
    from torch.distributed.fsdp import FSDPModule, fully_shard

    if isinstance(backbone, FSDPModule):
        return
    mesh = init_device_mesh(device.type, (distributed.get_world_size(),))
    whole = set(backbone.parameters()) - set(layers.parameters())
    for layer in layers:
        fully_shard(layer, mesh=mesh, reshard_after_forward=True)
    # of one root, so that a layer is fetched while the one before computes
    fully_shard(backbone, mesh=mesh, reshard_after_forward=True, ignored_params=whole)


@contextmanager
def _without_hooks(module: nn.Module) -> Iterator[None]:
    """Without ZeRO's: a pass would let go of what was gathered."""
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
    """What ZeRO, arXiv:1910.02054, should leave on each rank at most, for AdamW with fp32 master weights.

    Parameters whole below stage 3, gradients below stage 2; the optimizer's state, two moments and the master weights,
    in shards from stage 1 on. Frozen parameters have neither gradients nor state. At stage 2 gradients of what lies
    across the border of two shares are whole on both ranks. Of a parameter that stage 3 leaves whole a rank has its
    share beside. (At stage 3 on a GPU parameters in fp32 are their own master weights, and a third of the state less is
    held.)

    Args:
        module: its parameters, whole or in shards.
        stage: 1, 2 or 3.
        ranks: how many share.
        whole_elements: parameters of at most so many numbers stay whole at stage 3.
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

    ZeRO's stages 1 and 2 cut all parameters in a row into even shares, and the cuts go through parameters. At stage 2 a
    rank keeps the gradient of each that it has a part of, and keeps it whole:

        rank 0  ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓┊░░░░░
        rank 1                 ▒▒▒▒▒▒▒┊▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒▒
                └ embedding ──┘└ a matrix ─┘└ others ─────┘

    That is little beside a share of many matrices, and much where an embedding is larger than a share.

    Args:
        sizes: of each parameter its count of numbers and their bytes together.
        ranks: how many share.
    """
    share = 2 * -(-sum(count for count, _ in sizes) // (2 * ranks))  # DeepSpeed's are even
    ends = list(accumulate(count for count, _ in sizes))
    spans = [(end - count, end, held) for end, (count, held) in zip(ends, sizes, strict=True)]
    firsts = [rank * share for rank in range(ranks)]
    return max(sum(held for start, end, held in spans if start < first + share and end > first) for first in firsts)
