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
@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_token_log_probs_equal_full_softmax_in_value_and_gradient(chunk: int, temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(5, 8, generator=generator, requires_grad=True)
    weight = torch.randn(11, 8, generator=generator, requires_grad=True)
    targets = torch.tensor([0, 10, 3, 3, 7])
    upstream = torch.randn(5, generator=generator)

    expected = (hidden @ weight.T / temperature).log_softmax(-1)[torch.arange(5), targets]
    wanted = torch.autograd.grad(expected, [hidden, weight], upstream)
    actual = token_log_probs(hidden, weight, targets, temperature=temperature, chunk=chunk)
    got = torch.autograd.grad(actual, [hidden, weight], upstream)

    assert_close(actual, expected)
    for g, w in zip(got, wanted, strict=True):
        assert_close(g, w)


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_capped_log_probs_equal_full_softmax_in_value_and_gradient(temperature: float) -> None:
    generator = torch.Generator().manual_seed(0)
    hidden, weight = torch.randn(5, 8, generator=generator), torch.randn(11, 8, generator=generator)
    bias, targets = torch.randn(11, generator=generator), torch.tensor([0, 10, 3, 3, 7])
    upstream = torch.randn(5, generator=generator)
    given = [part.requires_grad_() for part in (hidden, weight, bias)]

    logits = 2 * torch.tanh((hidden @ weight.T + bias) / 2) / temperature
    expected = logits.log_softmax(-1)[torch.arange(5), targets]
    wanted = torch.autograd.grad(expected, given, upstream)
    actual = token_log_probs(hidden, weight, targets, temperature=temperature, chunk=2, bias=bias, softcap=2.0)
    assert_close(actual, expected)
    for g, w in zip(torch.autograd.grad(actual, given, upstream), wanted, strict=True):
        assert_close(g, w)


def test_token_log_probs_add_bias() -> None:
    hidden, weight, bias = torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([0.0, 1.0, 2.0])
    actual = token_log_probs(hidden, weight, torch.tensor([1]), temperature=1.0, chunk=4, bias=bias)
    assert_close(actual, bias.log_softmax(0)[1:2])


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


def test_token_log_probs_pass_gradcheck() -> None:
    generator = torch.Generator().manual_seed(0)
    shapes = (5, 3), (7, 3), (7,)
    parts = [torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_() for shape in shapes]
    targets = torch.tensor([6, 0, 3, 3, 1])

    def values(hidden: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        return token_log_probs(hidden, weight, targets, temperature=0.7, chunk=2, bias=bias)

    assert torch.autograd.gradcheck(values, parts)


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
