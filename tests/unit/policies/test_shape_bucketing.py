"""Spare rows: their number, that they change only rounding, and that shapes recur for other sizes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import linear
from torch.testing import assert_close
from torch.utils._python_dispatch import TorchDispatchMode

from contrastive_reasoning.policies import causal_lm, packed, shape_bucketing, shared_cache as prefill
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.decoder import decoder_of
from contrastive_reasoning.policies.shape_bucketing import bucketed_linear, spare_rows
from contrastive_reasoning.policies.shared_cache import read_prompts
from contrastive_reasoning.policies.tiny import train_tokenizer
from tests.tiny_models import tiny_llama, tiny_policy

CPU = torch.device("cpu")
HALF = torch.bfloat16
TOKENIZER = train_tokenizer(["1+2=3;3+4=7"], vocab_size=270, kind="llama")


def policy(dtype: torch.dtype = HALF) -> CausalLMPolicy:
    model = tiny_llama(TOKENIZER, hidden_size=32, seed=1)
    return tiny_policy(TOKENIZER, model, compute_dtype=dtype)


def rows(completions: list[int]) -> dict[str, Any]:
    """Completions of these lengths, two for each prompt of five tokens."""
    generator = torch.Generator().manual_seed(0)
    mask = torch.arange(max(completions)) < torch.tensor(completions)[:, None]
    prompts = torch.randint(3, 250, (len(completions) // 2, 5), generator=generator)
    return {
        "prompt_ids": prompts,
        "prompt_mask": torch.ones_like(prompts, dtype=torch.bool),
        "completion_ids": torch.randint(3, 250, mask.shape, generator=generator) * mask,
        "mask": mask,
        "owner": torch.arange(len(completions)) // 2,
    }


class Products(TorchDispatchMode):
    """Records the shapes of all products in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.shapes: set[tuple[torch.Size, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default):
            self.shapes |= {tuple(a.shape for a in args)} if args[-1].dtype == HALF else set()
        return func(*args, **(kwargs or {}))


@contextmanager
def without_spare_rows(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with monkeypatch.context() as patched:
        for module in (shape_bucketing, packed, prefill):
            patched.setattr(module, "spare_rows", lambda *_: 0)
        yield


@pytest.mark.parametrize(
    ("given", "spare"), [(0, 0), (1, 15), (16, 0), (511, 1), (513, 15), (1025, 31), (4096, 0), (4097, 127), (8191, 1)]
)
def test_spare_rows_by_size_device_and_dtype(given: int, spare: int) -> None:
    assert spare_rows(given, CPU, HALF) == spare
    assert spare_rows(given, CPU, torch.float32) == spare_rows(given, torch.device("cuda"), HALF) == 0


@pytest.mark.parametrize("autocast", [False, True])
def test_bucketed_linear_adds_rows_only_in_half_precision(autocast: bool) -> None:
    x, weight, bias = torch.randn(3, 2), torch.randn(4, 2), torch.randn(4)
    assert torch.equal(bucketed_linear(x, weight, bias), linear(x, weight, bias))
    given = [part if autocast else part.to(HALF) for part in (x, weight, bias)]
    with torch.autocast("cpu", HALF, enabled=autocast), Products() as products:
        found = bucketed_linear(*given)
    assert_close(found, linear(x, weight, bias).to(HALF), atol=0.05, rtol=0.05)
    assert {shapes[-2] for shapes in products.shapes} == {(16, 2)}


class SelfAttention:
    """A plan in which each token attends only to itself."""

    def attend(self, layer: int, query: Tensor, key: Tensor, value: Tensor, *, scaling: float) -> Tensor:
        return value.repeat_interleave(query.shape[1] // value.shape[1], dim=1)


def test_product_shapes_recur_for_other_lengths(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(causal_lm, "packing_pays", lambda lengths, sizes: True)
    model = policy()
    decoder = decoder_of(model)
    assert decoder is not None

    def shapes(longest: int) -> set[tuple[torch.Size, ...]]:
        with Products() as products:
            model.log_probs(**rows([longest, 2, 6, 7])).sum().backward()
            with torch.no_grad():
                tokens = torch.arange(3, 3 + longest)
                read_prompts(model, [tokens])
                logits, _ = decoder.read(tokens, tokens, SelfAttention())
                assert len(logits) == longest
        return products.shapes

    seen = shapes(34)
    assert seen
    assert all(shapes(longest) == seen for longest in (35, 36, 38))
    with without_spare_rows(monkeypatch):
        assert not shapes(36) & shapes(37) - seen, "else each size has its own"
        assert len(shapes(36) - seen) > 10


def test_spare_rows_change_only_rounding(monkeypatch: pytest.MonkeyPatch) -> None:
    """Log-probs, their gradient, and keys, values and logits of prompts are as close to full precision as without."""
    monkeypatch.setattr(causal_lm, "packing_pays", lambda lengths, sizes: True)

    def results(dtype: torch.dtype) -> list[Tensor]:
        model = policy(dtype)
        log_probs = model.log_probs(**rows([9, 2, 6, 7]))
        log_probs.sin().sum().backward()
        with torch.no_grad():
            (read,) = read_prompts(model, [torch.arange(3, 14)])
        gradient = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])
        return [log_probs.detach(), gradient, read.keys_values.float(), read.logits.float()]

    exact, bucketed = results(torch.float32), results(HALF)
    with without_spare_rows(monkeypatch):
        plain = results(HALF)
    for wanted, got, other in zip(exact, bucketed, plain, strict=True):
        assert_close(got.shape, other.shape)
        assert (got - wanted).norm() <= 1.5 * (other - wanted).norm() + 1e-6
        assert (got - wanted).norm() <= 0.05 * wanted.norm()
