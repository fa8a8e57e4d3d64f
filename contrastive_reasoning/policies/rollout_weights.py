"""The weights for rollouts when the policy is sharded on several ranks (ZeRO-3).

gathered    every parameter as it is: in fp32 4 bytes a number, plus what a pass casts to its compute dtype
copied      what a pass would cast is cast once, a parameter at a time: in bfloat16 2 bytes a number in all

The copy is made for each rollout batch and released before the update. Its passes multiply the same numbers as those of
the policy. Old log-probs, which are the engine's, are the same up to the rounding of products of another shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.sharding import gathered, is_sharded


@contextmanager
def whole_for_rollouts(policy: CausalLMPolicy, *, copied: bool) -> Iterator[CausalLMPolicy]:
    """Yields the policy with its parameters gathered, or a copy of its current weights, to draw rollouts from.

    A policy that is not sharded is whole, and never copied. Every rank must enter it.
    """
    if not (copied and is_sharded(policy)):
        with gathered(policy):
            yield policy
        return
    copy = copy_of_shards(policy)
    try:
        yield copy
    finally:
        for parameter in copy.parameters():  # frees memory even if something still refers to them
            parameter.data = parameter.data.new_empty(0)


def copy_of_shards(policy: CausalLMPolicy) -> CausalLMPolicy:
    """A frozen copy of a sharded policy, whole on every rank, with the linear layers in its compute dtype.

    Autocast casts these layers for every product, so passes of the copy multiply the same numbers as those of the
    policy. Embedding and norms keep their dtype: cast, they would round the states between the layers. One parameter is
    gathered at a time. Every rank must call it.
    """
    empty = policy.without_weights()
    cast = policy.compute_dtype
    made: dict[tuple[int, torch.dtype], nn.Parameter] = {}  # a tied matrix occurs as an embedding and as a layer
    for own, new in zip(policy.model.modules(), empty.model.modules(), strict=True):
        for name, parameter in own._parameters.items():
            if parameter is None:
                continue
            dtype = cast if isinstance(own, nn.Linear) and cast != torch.float32 else parameter.dtype
            key = id(parameter), dtype
            if key not in made:
                made[key] = nn.Parameter(_whole(parameter, dtype), requires_grad=False)
            new._parameters[name] = made[key]
        new._buffers |= own._buffers
    return empty


def _whole(parameter: nn.Parameter, dtype: torch.dtype) -> Tensor:
    from deepspeed import zero  # slow to import, and needed only for sharding

    with zero.GatheredParameters([parameter]):
        return parameter.detach().to(dtype, copy=True)
