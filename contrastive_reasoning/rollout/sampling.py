"""The sampling ladder: logits → temperature → top-k → top-p → one token per row, by one uniform number per token.

A row's numbers come from a generator of its own, before the first token. So neither the other rows of the batch nor
rows that finish early change its draws. Nothing is sorted if top-k and top-p are off.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor
from torch.nn.functional import pad

from contrastive_reasoning.ranges import at_least, within
from contrastive_reasoning.tasks.base import Problem

BLOCK = 512
"""Tokens whose weights are summed first when the vocabulary is larger."""
WIDE, AT_ONCE = 8192, 4
"""From a vocabulary of ``WIDE`` tokens on, a CPU draws for ``AT_ONCE`` rows at a time, which stay in its cache."""
Seed = tuple[int | str, ...]
"""The inputs that determine a draw: (seed, purpose, step) and what else tells draws apart."""


@dataclass(frozen=True, kw_only=True)
class Sampling:
    """Settings of sampling. Raises ValueError for a value out of range."""

    temperature: float
    """The divisor of the logits; 0 takes the most likely token."""
    top_k: int | None
    """Keep the k most likely tokens; None keeps all."""
    top_p: float
    """Keep the smallest set of most likely tokens whose probabilities reach p; 1.0 keeps all."""
    max_tokens: int
    """Maximum number of tokens in a completion; the context may end it earlier."""
    stop: Sequence[str]
    """A completion ends with the token that completes one of these strings, which stays part of its text."""

    def __post_init__(self) -> None:
        within("[0, inf)", temperature=self.temperature)
        if self.top_k is not None:
            at_least(1, top_k=self.top_k)
        within("(0, 1]", top_p=self.top_p)
        at_least(1, max_tokens=self.max_tokens)
        if isinstance(self.stop, str) or "" in self.stop:
            raise ValueError(f"stop must be a list of non-empty strings, got {self.stop!r}")
        object.__setattr__(self, "stop", tuple(self.stop))

    @property
    def greedy(self) -> bool:
        return self.temperature == 0

    @property
    def scoring_temperature(self) -> float:
        """The temperature at which log-probs are recorded: that of sampling, 1 for greedy completions."""
        return self.temperature or 1.0


def draw(
    logits: Float[Tensor, "B V"], uniforms: Float[Tensor, " B"], sampling: Sampling
) -> tuple[Int[Tensor, " B"], Float[Tensor, " B"]]:
    """One token per row and its log-prob under the full softmax at ``sampling.scoring_temperature``.

    Args:
        logits: of the next token; the softmax is taken in fp32.
        uniforms: one number in [0, 1) per row; unused when greedy.
        sampling: temperature, top-k and top-p.
    """
    full = not sampling.greedy and sampling.top_k is None and sampling.top_p == 1.0
    if full and logits.device.type == "cpu" and logits.shape[-1] >= WIDE:
        parts = zip(logits.split(AT_ONCE), uniforms.split(AT_ONCE), strict=True)
        tokens, log_probs = zip(*(_draw_wide(*part, sampling.temperature) for part in parts), strict=True)
        return torch.cat(tokens), torch.cat(log_probs)
    logits = logits.float() / sampling.scoring_temperature
    tokens = logits.argmax(-1) if sampling.greedy else sample(logits, uniforms, sampling.top_k, sampling.top_p)
    return tokens, logits.log_softmax(-1).gather(-1, tokens[:, None])[:, 0]


def _draw_wide(
    logits: Float[Tensor, "b V"], uniforms: Float[Tensor, " b"], temperature: float
) -> tuple[Int[Tensor, " b"], Float[Tensor, " b"]]:
    """As ``draw`` without top-k and top-p, by one exponential for each token instead of two softmaxes."""
    logits = logits.float() / temperature
    peak = logits.amax(-1, keepdim=True)
    weights = (logits - peak).exp_()
    tokens = invert_cdf(weights, uniforms)
    return tokens, (logits.gather(-1, tokens[:, None]) - peak)[:, 0] - weights.sum(-1).log()


def sample(
    logits: Float[Tensor, "B V"], uniforms: Float[Tensor, " B"], top_k: int | None, top_p: float
) -> Int[Tensor, " B"]:
    """Tokens from softmax(logits) restricted to the top k, then to the top p of these."""
    if top_k is None and top_p == 1.0:
        return invert_cdf(logits.softmax(-1), uniforms)
    kept, tokens = logits.topk(min(top_k or logits.shape[-1], logits.shape[-1]), dim=-1)  # sorted, most likely first
    choice = invert_cdf(nucleus(kept.softmax(-1), top_p), uniforms)
    return tokens.gather(-1, choice[:, None])[:, 0]


def nucleus(probabilities: Float[Tensor, "B K"], top_p: float) -> Float[Tensor, "B K"]:
    """Probabilities, given in decreasing order, with 0 for those after the first ones that together reach ``top_p``."""
    before = probabilities.cumsum(-1) - probabilities
    return probabilities.masked_fill(before >= top_p, 0.0)


def invert_cdf(weights: Float[Tensor, "B K"], uniforms: Float[Tensor, " B"]) -> Int[Tensor, " B"]:
    """Per row the index i with F(i−1) ≤ u·F(K−1) < F(i), F the running sum of ``weights``: never one of weight 0.

    F is summed in fp64, where u·F stays below F: the largest fp32 number below 1 is 1 − 2⁻²⁴. For NaN weights it is the
    last index. The log-prob of that token is then NaN, too, which reveals the error. In a large vocabulary F is summed
    over blocks, and over indices only within the block that holds i.
    """
    count, uniforms = weights.shape[-1], uniforms[:, None].double()
    if count <= BLOCK:
        cumulative = weights.cumsum(-1, dtype=torch.float64)
        return _first_above(cumulative, uniforms * cumulative[:, -1:])[:, 0]
    blocks = pad(weights, (0, -count % BLOCK)).unflatten(-1, (-1, BLOCK))
    sums = blocks.sum(-1, dtype=torch.float64).cumsum(-1)
    level = uniforms * sums[:, -1:]
    block = _first_above(sums, level)
    within = blocks.take_along_dim(block[:, :, None], dim=1)[:, 0].cumsum(-1, dtype=torch.float64)
    # the two sums of a block may be rounded differently: the level within it stays below its last running sum
    below = torch.nextafter(within[:, -1:], torch.zeros_like(within[:, -1:]))
    found = _first_above(within, torch.minimum(level - pad(sums, (1, 0)).gather(-1, block), below))
    return (block * BLOCK + found)[:, 0].clamp(max=count - 1)


def _first_above(increasing: Float[Tensor, "B K"], level: Float[Tensor, "B 1"]) -> Int[Tensor, "B 1"]:
    """Per row the index of the first number above the level, else of the last one."""
    return torch.searchsorted(increasing, level, right=True).clamp(max=increasing.shape[-1] - 1)


def row_uniforms(
    problems: Sequence[Problem],
    *,
    group_size: int,
    length: int,
    seed: Seed,
    prefixes: Sequence[Sequence[int]] = (),
    earlier: Sequence[int] | None = None,
) -> Float[Tensor, "B T"]:
    """Uniform numbers for T tokens of P·G rows, prompt-major; each row's depend on (seed, problem, place in group).

    If completions are continued, they also depend on the prefix. A problem that is repeated with the same prefix
    continues the count of places, so its rows differ from the first ones. For ``earlier`` see ``RolloutEngine``.
    """
    names = names_of(problems, prefixes)
    rows = []
    for name, before in zip(names, earlier_occurrences(names) if earlier is None else earlier, strict=True):
        for place in range(before * group_size, (before + 1) * group_size):
            # a generator of the CPU: one of another device would draw other numbers
            generator = torch.Generator().manual_seed(derived_seed((*seed, *name, place)))
            rows.append(torch.rand(length, generator=generator))
    return torch.stack(rows)


def earlier_occurrences(names: Sequence[Hashable]) -> list[int]:
    """For each name the number of equal ones before it."""
    seen: Counter[Hashable] = Counter()
    counts = []
    for name in names:
        counts.append(seen[name])
        seen[name] += 1
    return counts


def names_of(problems: Sequence[Problem], prefixes: Sequence[Sequence[int]]) -> list[Seed]:
    """The part of a seed that distinguishes each prompt: the problem, and the tokens of its prefix if it has some."""
    return [
        (problem.id, " ".join(map(str, prefix))) if prefix else (problem.id,)
        for problem, prefix in zip(problems, prefixes or [()] * len(problems), strict=True)
    ]


def rollout_seed(seed: int, step: int) -> Seed:
    """The seed of a training step's rollouts, the same on every rank."""
    return seed, "rollout", step


def derived_seed(parts: Seed) -> int:
    """63 bits that depend on every part; the same in every process."""
    digest = hashlib.blake2b(repr(tuple(parts)).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


class Ends:
    """Detects rows that end with their newest token: an end token, or one that completes a stop string."""

    def __init__(self, end_tokens: Sequence[int], stops: StopStrings | None, device: torch.device) -> None:
        self.tokens = torch.tensor(end_tokens, device=device)
        self.stops = stops

    def ended(self, rows: Sequence[int], tokens: Int[Tensor, " b"]) -> Bool[Tensor, " b"]:
        """Adds one token to each of the given rows; True for those that end with it."""
        ended = torch.isin(tokens, self.tokens)
        if self.stops is None:
            return ended
        return ended | torch.tensor(self.stops.completed(rows, tokens.tolist()), device=tokens.device)


class StopStrings:
    """Detects rows that have just completed one of the strings, by their bytes: one may span several tokens."""

    def __init__(
        self, strings: Sequence[str], table: Sequence[bytes], *, rows: int, prefixes: Sequence[Sequence[int]] = ()
    ) -> None:
        """``prefixes``: the tokens at the start of each row, in which a stop string may begin that ends later."""
        self.strings = [string.encode() for string in strings]
        self.table = table
        self.tails = [b""] * rows
        self.keep = max((len(string) for string in self.strings), default=1) - 1
        for row, tokens in enumerate(prefixes):
            self.completed([row] * len(tokens), tokens)

    def completed(self, rows: Sequence[int], tokens: Sequence[int]) -> list[bool]:
        """Adds one token to each of the given rows; True if a stop string ended within it."""
        found = []
        for row, token in zip(rows, tokens, strict=True):
            text = self.tails[row] + (self.table[token] if token < len(self.table) else b"")
            self.tails[row] = text[max(len(text) - self.keep, 0) :]  # text[-keep:] is the whole text if keep is 0
            found.append(any(string in text for string in self.strings))
        return found


def length_of(written: Sequence[int], ends: Collection[int], stops: StopStrings) -> int | None:
    """Number of tokens up to the one that ended a completion: an end token or a stop string's last. None: none did."""
    for n, token in enumerate(written, start=1):
        if token in ends or stops.completed([0], [token])[0]:
            return n
    return None
