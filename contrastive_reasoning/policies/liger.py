"""Log-probs of given tokens by liger-kernel's fused projection and cross-entropy, on CUDA.

        log π(y) = −CE(W (h / τ) + b / τ, y)

A sibling of ``token_log_probs``: the same numbers, with softmax and sums of gradients in fp32, and no full logits. Its
kernel writes the gradient over the logits of a chunk, so that less memory is read and written.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from contrastive_reasoning.policies.log_probs import token_log_probs


def liger_log_probs(
    hidden: Float[Tensor, "N D"],
    weight: Float[Tensor, "V D"],
    targets: Int[Tensor, " N"],
    *,
    temperature: float,
    chunk: int,
    bias: Float[Tensor, " V"] | None = None,
) -> Float[Tensor, " N"]:
    """log softmax(W h / τ)[target] of each of N tokens, in nats.

    Arguments and errors are those of ``token_log_probs``, which is called for tensors that are not on CUDA and for
    fp64. The kernel chooses its chunks itself.
    """
    if hidden.device.type != "cuda" or hidden.dtype == torch.float64 or not len(hidden) or temperature <= 0:
        return token_log_probs(hidden, weight, targets, temperature=temperature, chunk=chunk, bias=bias)
    dtype = torch.get_autocast_dtype("cuda") if torch.is_autocast_enabled("cuda") else hidden.dtype
    fused: Any = import_module("liger_kernel.transformers.functional").liger_fused_linear_cross_entropy
    with torch.autocast("cuda", enabled=False):
        return -fused(
            (hidden / temperature).to(dtype),
            weight.to(dtype),
            targets,
            bias=None if bias is None else (bias / temperature).to(dtype),
            reduction="none",
            accum_dtype=torch.float32,
        ).float()


def require_liger() -> None:
    """Refuse a machine on which the kernel could not run.

    Raises:
        ValueError: where the extra or a CUDA device is missing.
    """
    if find_spec("liger_kernel") is None:
        raise ValueError("policy.kernels=liger needs the extra: pip install 'contrastive-reasoning[liger]'")
    if not torch.cuda.is_available():
        raise ValueError("policy.kernels=liger needs a CUDA device, and there is none; policy.kernels=torch does not")
