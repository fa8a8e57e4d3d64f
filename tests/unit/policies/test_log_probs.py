from __future__ import annotations

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.policies.log_probs import token_log_probs


@pytest.mark.parametrize("chunk", [1, 3, 5, 100])
@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.0])
def test_equals_the_full_softmax_in_value_and_gradient(chunk: int, temperature: float) -> None:
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


def test_a_bias_counts() -> None:
    hidden, weight, bias = torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([0.0, 1.0, 2.0])
    actual = token_log_probs(hidden, weight, torch.tensor([1]), temperature=1.0, chunk=4, bias=bias)
    assert_close(actual, bias.log_softmax(0)[1:2])


def test_no_tokens_give_no_numbers() -> None:
    empty = token_log_probs(
        torch.zeros(0, 2), torch.zeros(3, 2), torch.zeros(0, dtype=torch.long), temperature=1.0, chunk=4
    )
    assert empty.shape == (0,)


@pytest.mark.parametrize(("setting", "message"), [({"temperature": 0.0}, "temperature"), ({"chunk": 0}, "chunk")])
def test_bad_settings_are_refused(setting: dict[str, float], message: str) -> None:
    arguments = {"temperature": 1.0, "chunk": 4, **setting}
    with pytest.raises(ValueError, match=message):
        token_log_probs(torch.zeros(1, 2), torch.zeros(3, 2), torch.tensor([0]), **arguments)  # pyright: ignore
