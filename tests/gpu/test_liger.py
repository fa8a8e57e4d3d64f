"""liger's kernel against full logits in float64: values, gradients, with and without bias, at two temperatures."""

from __future__ import annotations

from importlib.util import find_spec

import pytest
import torch
from torch import Tensor

from contrastive_reasoning.policies.log_probs import liger_log_probs, token_log_probs

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device"),
    pytest.mark.skipif(find_spec("liger_kernel") is None, reason="needs the extra: pip install '.[liger]'"),
]
N, D, V = 300, 64, 1_000


def random_inputs(with_bias: bool) -> tuple[list[Tensor], Tensor, Tensor]:
    """Hidden states, weight and optional bias in float64; targets; the upstream gradient of each log-prob."""
    generator = torch.Generator().manual_seed(0)
    hidden, weight, bias, upstream = (
        torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((N, D), (V, D), (V,), (N,))
    )
    parts = [hidden, weight / D**0.5 * 3, *([bias] if with_bias else [])]
    targets = torch.randint(V, (N,), generator=generator)
    return [part.cuda() for part in parts], targets.cuda(), upstream.cuda()


def full_logits_log_probs(parts: list[Tensor], targets: Tensor, temperature: float) -> Tensor:
    hidden, weight, *bias = parts
    logits = hidden @ weight.T + (bias[0] if bias else 0)
    return (logits / temperature).log_softmax(-1).gather(1, targets[:, None])[:, 0]


def with_gradients(values: Tensor, parts: list[Tensor], upstream: Tensor) -> list[Tensor]:
    return [values.detach(), *torch.autograd.grad((values * upstream.to(values.dtype)).sum(), parts)]


def relative_error(found: Tensor, exact: Tensor) -> float:
    return float((found.double() - exact).norm() / exact.norm())


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("temperature", [1.0, 0.7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_liger_log_probs_are_as_accurate_as_token_log_probs(
    dtype: torch.dtype, temperature: float, with_bias: bool
) -> None:
    exact_parts, targets, upstream = random_inputs(with_bias)
    exact_parts = [part.to(dtype).double().requires_grad_() for part in exact_parts]
    exact = with_gradients(full_logits_log_probs(exact_parts, targets, temperature), exact_parts, upstream)
    errors = []
    for score in (liger_log_probs, token_log_probs):
        parts = [part.detach().to(dtype).requires_grad_() for part in exact_parts]
        hidden, weight, *bias = parts
        values = score(hidden, weight, targets, temperature=temperature, chunk=128, bias=bias[0] if bias else None)
        assert values.dtype == torch.float32
        found = with_gradients(values, parts, upstream)
        errors.append([relative_error(one, true) for one, true in zip(found, exact, strict=True)])
    floor = 1e-5 if dtype == torch.float32 else 1e-2
    for ours, other in zip(*errors, strict=True):
        assert ours <= max(2 * other, floor)


def test_float32_weights_get_float32_gradients_under_autocast() -> None:
    parts, targets, upstream = random_inputs(False)
    hidden, weight = (part.float().requires_grad_() for part in parts)
    with torch.autocast("cuda", dtype=torch.bfloat16):
        values = liger_log_probs(hidden, weight, targets, temperature=1.0, chunk=128)
        expected = token_log_probs(hidden, weight, targets, temperature=1.0, chunk=128)
    assert (values - expected).abs().max() < 0.1
    values.backward(upstream.float())
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32
    assert weight.grad.abs().max() > 0


def test_empty_input_gives_no_log_probs_and_zero_gradient() -> None:
    parts, targets, _ = random_inputs(False)
    hidden, weight = (part.float().requires_grad_() for part in parts)
    values = liger_log_probs(hidden[:0], weight, targets[:0], temperature=1.0, chunk=128)
    values.sum().backward()
    assert len(values) == 0
    assert weight.grad is not None
    assert not weight.grad.any()
