"""Sharded parameters on several ranks: gathering them for a pass, and sharding a frozen model.

Trained parameters are sharded by ZeRO, frozen ones by torch's own ``fully_shard``.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
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
