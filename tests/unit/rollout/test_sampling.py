"""The sampler on logits with a known distribution; random numbers of rows; stop strings."""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from itertools import accumulate

import pytest
import torch
from scipy.stats import chisquare

from contrastive_reasoning.rollout.sampling import (
    AT_ONCE,
    BLOCK,
    WIDE,
    Sampling,
    StopStrings,
    derived_seed,
    draw,
    invert_cdf,
    row_uniforms,
)
from contrastive_reasoning.tasks.base import Problem

LOGITS = torch.tensor([1.0, -0.5, 2.0, 0.0, -3.0, 1.5])
DRAWS = 20_000


def sampling(temperature: float = 1.0, top_k: int | None = None, top_p: float = 1.0) -> Sampling:
    return Sampling(temperature=temperature, top_k=top_k, top_p=top_p, max_tokens=4, stop=[])


def expected(temperature: float, top_k: int | None, top_p: float) -> list[float]:
    """The expected distribution, by sorting and adding up weights."""
    weights = {i: math.exp(x / temperature) for i, x in enumerate(LOGITS.tolist())}
    ranked = sorted(weights, key=lambda i: -weights[i])[: top_k or len(weights)]
    mass, kept = 0.0, []
    for i in ranked:
        if mass < top_p * sum(weights[j] for j in ranked):
            kept.append(i)
        mass += weights[i]
    total = sum(weights[i] for i in kept)
    return [weights[i] / total if i in kept else 0.0 for i in weights]


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(0.5, None, 1.0), (2.0, None, 1.0), (1.0, 3, 1.0), (1.0, None, 0.7), (1.5, 4, 0.8), (1.0, 99, 1.0)],
)
def test_draw_follows_softmax_with_top_k_and_top_p(temperature: float, top_k: int | None, top_p: float) -> None:
    uniforms = torch.rand(DRAWS, generator=torch.Generator().manual_seed(0))
    tokens, log_probs = draw(LOGITS.expand(DRAWS, -1), uniforms, sampling(temperature, top_k, top_p))
    counts = torch.bincount(tokens, minlength=len(LOGITS)).tolist()
    wanted = expected(temperature, top_k, top_p)
    assert all(count == 0 for count, p in zip(counts, wanted, strict=True) if p == 0)
    kept = [(count, p * DRAWS) for count, p in zip(counts, wanted, strict=True) if p > 0]
    assert chisquare(*zip(*kept, strict=True)).pvalue > 1e-3
    torch.testing.assert_close(log_probs, (LOGITS / temperature).log_softmax(-1)[tokens])


def test_greedy_draw_takes_argmax_and_scores_it_at_temperature_one() -> None:
    tokens, log_probs = draw(LOGITS[None], torch.tensor([0.9]), sampling(temperature=0.0))
    assert tokens.tolist() == [2]
    torch.testing.assert_close(log_probs, LOGITS.log_softmax(-1)[2:3])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.7, 1.0])
def test_draw_from_a_wide_vocabulary_is_exact(dtype: torch.dtype, temperature: float) -> None:
    """The uniforms lie in the middle of the intervals of known tokens, the first and the last that occur among them."""
    generator = torch.Generator().manual_seed(0)
    logits = (4 * torch.randn(3 * AT_ONCE + 1, WIDE + 3, generator=generator)).to(dtype)
    logits[:, ::2] = -torch.inf
    logits[0, 1] = logits[1, WIDE + 1] = 10
    ranks = torch.randint(50, (len(logits), 1), generator=generator)  # of tokens that fp32 uniforms can meet
    wanted = logits.topk(50).indices.gather(-1, ranks)[:, 0]
    wanted[:2] = torch.tensor([1, WIDE + 1])
    exact = (logits.double() / temperature).log_softmax(-1)
    cumulative = exact.exp().cumsum(-1)
    place = wanted[:, None]
    uniforms = (cumulative.gather(-1, place) - exact.exp().gather(-1, place) / 2)[:, 0].float()

    tokens, log_probs = draw(logits, uniforms, sampling(temperature))

    assert tokens.tolist() == wanted.tolist()
    torch.testing.assert_close(log_probs.double(), exact.gather(-1, place)[:, 0], rtol=1e-6, atol=1e-5)
    for row in (0, AT_ONCE + 1, len(logits) - 1):  # other rows change nothing, to the last bit
        alone = draw(logits[row : row + 1], uniforms[row : row + 1], sampling(temperature))
        assert alone == (tokens[row], log_probs[row])


def test_draw_from_wide_nan_logits_has_a_nan_log_prob() -> None:
    tokens, log_probs = draw(torch.full((1, WIDE), torch.nan), torch.tensor([0.5]), sampling())
    assert 0 <= int(tokens) < WIDE
    assert bool(log_probs.isnan())


@pytest.mark.parametrize("size", [BLOCK, BLOCK + 1, 5 * BLOCK + 7])
def test_invert_cdf_equals_a_running_sum(size: int) -> None:
    generator = torch.Generator().manual_seed(0)
    weights = torch.randn(200, size, generator=generator).mul_(4).exp_()
    weights[torch.rand(weights.shape, generator=generator) < 0.5] = 0.0
    weights[50:100, : size // 2] = 0.0
    weights[100:150] *= 1e-30
    uniforms = torch.rand(200, generator=generator)
    uniforms[::10], uniforms[5::10] = 0.0, 1 - 2**-24
    found = invert_cdf(weights, uniforms)
    for row, (own, u) in enumerate(zip(weights.double().tolist(), uniforms.double().tolist(), strict=True)):
        sums = list(accumulate(own))
        assert found[row] == bisect_right(sums, u * sums[-1])
    assert (weights.gather(1, found[:, None]) > 0).all()
    assert invert_cdf(torch.full((1, size), float("nan")), uniforms[:1]).tolist() == [size - 1]


def test_row_uniforms_do_not_depend_on_the_batch_and_differ_for_a_repeated_problem() -> None:
    a, b, c = (Problem(id=name, prompt="", answer="") for name in "abc")
    together = row_uniforms([a, b, c, a], group_size=2, length=5, seed=(0, "rollout", 3))
    alone = row_uniforms([c], group_size=2, length=5, seed=(0, "rollout", 3))
    longer = row_uniforms([b], group_size=3, length=9, seed=(0, "rollout", 3))
    assert torch.equal(together[4:6], alone)
    assert torch.equal(together[2:4], longer[:2, :5])
    assert together.unique().numel() == together.numel()


def test_derived_seed_depends_on_every_part() -> None:
    seeds = [(0, "a", 1, 0), (0, "a", 0, 1), (1, "a", 0, 0), (0, "b", 1, 0), (0, "a", 10)]
    assert len({derived_seed(seed) for seed in seeds}) == len(seeds)
    assert derived_seed((0, "rollout", 1)) == 8176936755945363114  # the same in every process and version


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *[("temperature", value) for value in (-1.0, float("nan"), float("inf"))],
        *[("top_k", 0), ("top_p", 0.0), ("top_p", 1.1), ("max_tokens", 0), ("stop", "x"), ("stop", [""])],
    ],
)
def test_sampling_rejects_values_out_of_range(key: str, value: object) -> None:
    settings = {"temperature": 1.0, "top_k": None, "top_p": 1.0, "max_tokens": 4, "stop": []} | {key: value}
    with pytest.raises(ValueError, match=key):
        Sampling(**settings)


TABLE = [b"a", b"b", b"ab", b"aab", "é".encode()[:1], "é".encode()[1:], b""]


def test_stop_strings_are_detected_at_their_last_byte() -> None:
    rng = random.Random(0)
    for _ in range(200):
        strings = rng.sample(["bab", "é", "aaa", "ba"], k=2)
        detector, text, seen = StopStrings(strings, TABLE, rows=2), b"", False
        for _ in range(12):
            token = rng.randrange(len(TABLE) + 1)  # one id is beyond the table
            text += TABLE[token] if token < len(TABLE) else b""
            found = detector.completed([1], [token])[0]
            seen = seen or found
            assert seen == any(string.encode() in text for string in strings)
