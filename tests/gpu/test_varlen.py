"""FlashAttention over segments against masked blocks, and fused layers: values and gradients in bfloat16 on a GPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.packed import pack
from contrastive_reasoning.policies.pass_cost import Lengths
from contrastive_reasoning.policies.varlen import FLASH, SharedSegments
from tests.tiny_models import loaded_policy

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]
LENGTHS = Lengths(prompts=[31, 140, 9], completions=[1, 90, 300, 20, 14, 55, 0, 5], owner=[1, 1, 1, 0, 0, 2, 2, 2])


def inputs() -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    prompt_mask, mask = (
        torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]
        for lengths in (LENGTHS.prompts, LENGTHS.completions)
    )
    ids = (torch.randint(3, 250, part.shape, generator=generator) * part for part in (prompt_mask, mask))
    prompt_ids, completion_ids = ids
    owner = torch.tensor(LENGTHS.owner)
    return prompt_ids.cuda(), prompt_mask.cuda(), completion_ids.cuda(), mask.cuda(), owner.cuda()


def log_probs_and_gradient(
    attention: Any, dtype: torch.dtype, *, fused: bool = False, **settings: bool
) -> tuple[Tensor, Tensor]:
    policy: CausalLMPolicy = loaded_policy("embedded:qwen_countdown", **settings).cuda()
    policy.compute_dtype, policy.attention, policy.fused = dtype, attention, fused
    assert policy.fuses == fused
    prompt_ids, prompt_mask, completion_ids, mask, owner = inputs()
    scores = policy.log_probs(prompt_ids, prompt_mask, completion_ids, mask, owner=owner)
    scores.sum().backward()
    gradient = torch.cat([weight.grad.flatten() for weight in policy.parameters() if weight.grad is not None])
    return scores.detach().double(), gradient.double()


def test_segments_are_packed_by_the_kernel() -> None:
    assert isinstance(pack(*inputs(), LENGTHS, dtype=torch.bfloat16, kernel=FLASH).plan, SharedSegments)


def test_flash_attention_is_as_accurate_as_blocks() -> None:
    exact = log_probs_and_gradient(None, torch.float32)
    blocks, flash = (log_probs_and_gradient(attention, torch.bfloat16) for attention in (None, FLASH))
    for wanted, of_blocks, of_flash in zip(exact, blocks, flash, strict=True):
        assert (of_flash - wanted).norm() <= 1.5 * (of_blocks - wanted).norm()


@pytest.mark.parametrize("setting", ["gradient_checkpointing", "compiled"])
def test_flash_attention_works_with_other_settings(setting: str) -> None:
    plain, other = (log_probs_and_gradient(FLASH, torch.bfloat16, **{setting: on}) for on in (False, True))
    exact = log_probs_and_gradient(None, torch.float32)
    for wanted, of_plain, of_other in zip(exact, plain, other, strict=True):
        assert (of_other - wanted).norm() <= 1.5 * (of_plain - wanted).norm()


@pytest.mark.parametrize("attention", [None, FLASH], ids=["blocks", "segments"])
def test_fused_layers_are_as_accurate_as_the_models_own(attention: Any) -> None:
    exact = log_probs_and_gradient(None, torch.float32)
    own, fused = (log_probs_and_gradient(attention, torch.bfloat16, fused=on) for on in (False, True))
    for wanted, of_own, of_fused in zip(exact, own, fused, strict=True):
        assert (of_fused - wanted).norm() <= 1.5 * (of_own - wanted).norm()
