from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, is_tensor
from torch.autograd.graph import saved_tensors_hooks
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from contrastive_reasoning.policies.log_probs import token_log_probs


@pytest.mark.parametrize("chunk", [1, 3, 5, 100])
@pytest.mark.parametrize(
    ("temperature", "with_bias", "softcap"),
    [(0.3, False, None), (1.0, False, None), (0.7, True, None), (0.3, True, 2.0)],
)
def test_token_log_probs_equal_full_softmax_in_value_and_gradient(
    chunk: int, temperature: float, with_bias: bool, softcap: float | None
) -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = [(5, 8), (11, 8), *([(11,)] if with_bias else [])]
    given = [torch.randn(*shape, generator=generator).requires_grad_() for shape in shapes]
    targets, upstream = torch.tensor([0, 10, 3, 3, 7]), torch.randn(5, generator=generator)
    logits = given[0] @ given[1].T + (given[2] if with_bias else 0)
    capped = logits if softcap is None else softcap * torch.tanh(logits / softcap)
    expected = (capped / temperature).log_softmax(-1)[torch.arange(5), targets]
    wanted = torch.autograd.grad(expected, given, upstream)
    settings: dict[str, Any] = {"bias": given[2] if with_bias else None, "softcap": softcap}
    actual = token_log_probs(*given[:2], targets, temperature=temperature, chunk=chunk, **settings)
    assert_close(actual, expected)
    for g, w in zip(torch.autograd.grad(actual, given, upstream), wanted, strict=True):
        assert_close(g, w)


@pytest.mark.parametrize(("name", "value"), [("temperature", 0.0), ("chunk", 0)])
def test_token_log_probs_rejects_invalid_settings(name: str, value: float) -> None:
    arguments = {"temperature": 1.0, "chunk": 4, name: value}
    with pytest.raises(ValueError, match=name):
        token_log_probs(torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([0]), **arguments)  # pyright: ignore


class Outputs(TorchDispatchMode):
    """Records the number of elements of every created tensor."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **kwargs or {})
        self.sizes += [part.numel() for part in (made if isinstance(made, tuple | list) else [made]) if is_tensor(part)]
        return made


def largest_and_kept(tokens: int, vocabulary: int, chunk: int) -> tuple[int, int]:
    """Elements of the largest tensor created in forward and backward, and of all tensors kept for backward."""
    hidden, weight = torch.randn(tokens, 4, requires_grad=True), torch.randn(vocabulary, 4, requires_grad=True)
    targets = torch.arange(tokens) % vocabulary
    kept: dict[int, int] = {}

    def note(tensor: Tensor) -> Tensor:
        kept[tensor.data_ptr()] = tensor.numel()
        return tensor

    with Outputs() as made, saved_tensors_hooks(note, lambda tensor: tensor):
        token_log_probs(hidden, weight, targets, temperature=0.7, chunk=chunk).sum().backward()
    return max(made.sizes), sum(kept.values())


def test_token_log_probs_memory_does_not_grow_with_token_count() -> None:
    few, many = (largest_and_kept(tokens, 20_000, chunk=128) for tokens in (512, 2048))
    assert few[0] >= 128 * 20_000, "the logits of a chunk are seen"
    assert many[0] < 1.3 * few[0]
    assert many[1] < 4 * 128 * 20_000, "no chunk is kept"


def test_frozen_weight_and_bias_get_no_gradient() -> None:
    hidden, weight, bias = torch.randn(3, 2, requires_grad=True), torch.randn(5, 2), torch.zeros(5)
    token_log_probs(hidden, weight, torch.tensor([0, 4, 2]), temperature=1.0, chunk=2, bias=bias).sum().backward()
    assert hidden.grad is not None
    assert weight.grad is None
    assert bias.grad is None


@pytest.mark.parametrize("tokens", [33, 512])
def test_autocast_gradient_chunks_are_summed_in_weight_dtype(tokens: int) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = (torch.randn(n, 16, generator=generator).requires_grad_() for n in (tokens, 50))
    targets = torch.arange(tokens) % 50
    exact = (hidden.double() @ weight.double().T).log_softmax(-1)[torch.arange(tokens), targets]
    wanted = torch.autograd.grad(exact.sum(), [hidden, weight])
    with torch.autocast("cpu", dtype=torch.bfloat16):
        actual = token_log_probs(hidden, weight, targets, temperature=1.0, chunk=1)
    assert actual.dtype == torch.float32
    got = torch.autograd.grad(actual.sum(), [hidden, weight])
    assert_close(actual, exact.float(), rtol=0.0, atol=0.1)
    for g, w in zip(got, wanted, strict=True):
        assert g.dtype == torch.float32
        assert (g - w).norm() < 0.01 * w.norm()


def test_empty_input_has_zero_gradient() -> None:
    hidden, weight = torch.zeros(0, 2, requires_grad=True), torch.ones(3, 2, requires_grad=True)
    empty = torch.zeros(0, dtype=torch.long)
    token_log_probs(hidden, weight, empty, temperature=1.0, chunk=4).sum().backward()
    assert weight.grad is not None
    assert not weight.grad.any()
