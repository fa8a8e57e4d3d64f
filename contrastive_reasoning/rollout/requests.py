"""Common parts of engines: the requests as their input, and the completions in progress.

problems  →  Requests: prompts in tokens, how long each completion may get  →  Completions  →  RolloutBatch
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from contrastive_reasoning.errors import RUN_AGAIN, EndsRun
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy, evaluating
from contrastive_reasoning.policies.pooling import mean_pool_rows
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.sampling import Ends, Sampling, Seed, StopStrings
from contrastive_reasoning.rollout.spans import text_of, token_bytes, token_spans
from contrastive_reasoning.tasks.base import Problem

Written = Callable[[int, str], None]
"""Called once for each finished completion, with its row in the batch and its text."""


class ServerError(EndsRun):
    """The server of an engine cannot be reached, does not answer in time, or returns an error or an invalid answer."""

    advice = RUN_AGAIN


@runtime_checkable
class RolloutEngine(Protocol):
    def generate(
        self,
        policy: CausalLMPolicy,
        problems: Sequence[Problem],
        *,
        group_size: int,
        sampling: Sampling,
        seed: Seed,
        pooled: bool = False,
        prefixes: Sequence[Sequence[int]] | None = None,
        earlier: Sequence[int] | None = None,
        written: Written | None = None,
    ) -> RolloutBatch:
        """Generates ``group_size`` completions of each problem, prompt-major; the same for the same seed and weights.

        With ``pooled`` the batch also holds the mean last hidden state of each completion, its last token included.
        With ``prefixes``, one for each problem, completions are continued. The tokens of a prefix follow the prompt and
        are part of ``prompt_ids``. The completions of the batch are what comes after, up to what the prefix leaves of
        ``max_tokens``. An empty prefix is the same as none. ``written`` is called once for each completion, in any
        order, on the calling thread.

        Repeated problems get different draws. ``earlier`` is, for each problem, the number of its occurrences before it
        in the step, on all ranks: a rank cannot count those of the others. None: those in ``problems`` are counted.

        Raises ValueError for no problems, a group size below 1, a prompt that does not fit the context, or a prefix
        that leaves no tokens to write.
        """
        ...


@dataclass(frozen=True, kw_only=True)
class Requests:
    """B = P·G completions to write, prompt-major."""

    prompt_ids: Int[Tensor, "P S"]
    """Left-padded; the prefix of a completion that is continued follows its prompt."""
    prompt_mask: Bool[Tensor, "P S"]
    limits: Int[Tensor, " P"]
    """Maximum tokens of a completion: the requested number, or what the context leaves."""
    group_size: int
    prefixes: Sequence[Sequence[int]] = ()
    """The tokens with which the completions of each prompt begin, if they are continued."""

    def __len__(self) -> int:
        return len(self.prompt_ids) * self.group_size

    @property
    def row_prefixes(self) -> list[Sequence[int]]:
        """For each row the tokens with which its completion begins."""
        return [prefix for prefix in self.prefixes or [()] * len(self.prompt_ids) for _ in range(self.group_size)]

    def chunks(self, max_batch_tokens: int) -> Iterator[range]:
        """Rows in order, in runs for which (longest prompt + longest completion) · rows stays within the budget."""
        needs = (self.prompt_mask.sum(1) + self.limits).tolist()
        start, widest = 0, 0
        for row in range(len(self)):
            widest = max(widest, needs[row // self.group_size])
            if row > start and widest * (row + 1 - start) > max_batch_tokens:
                yield range(start, row)
                start, widest = row, needs[row // self.group_size]
        yield range(start, len(self))

    def prompts_of(self, rows: range) -> tuple[Int[Tensor, "p s"], Bool[Tensor, "p s"], Int[Tensor, " b"]]:
        """The distinct prompts of some rows, cut to the longest of them, and for each row the index of its prompt."""
        first, last = rows.start // self.group_size, (rows.stop - 1) // self.group_size
        mask = self.prompt_mask[first : last + 1]
        width = int(mask.sum(1).max())
        owner = torch.arange(rows.start, rows.stop, device=mask.device) // self.group_size - first
        return self.prompt_ids[first : last + 1, -width:], mask[:, -width:], owner


def encode(
    policy: CausalLMPolicy,
    problems: Sequence[Problem],
    group_size: int,
    sampling: Sampling,
    prefixes: Sequence[Sequence[int]] | None,
) -> Requests:
    """Encodes the prompts of some problems, and the prefixes of their completions.

    Raises ValueError for no problems, a group size below 1, a prompt without tokens or too long for the context, or a
    prefix that contains an end token or leaves nothing of ``max_tokens``.
    """
    if not problems:
        raise ValueError("no problems were given: rollouts need at least one")
    at_least(1, group_size=group_size)
    prefixes = [()] * len(problems) if prefixes is None else prefixes
    if len(prefixes) != len(problems):
        raise ValueError(f"prefixes are one for each problem: got {len(prefixes)} for {len(problems)} problems")
    rows, limits = [], []
    for problem, prefix in zip(problems, prefixes, strict=True):
        row, left = [*policy.prompt_ids(problem.prompt), *prefix], sampling.max_tokens - len(prefix)
        if len(row) == len(prefix):
            raise ValueError(f"the prompt of problem {problem.id} has no tokens: there is nothing to continue")
        if left < 1:
            raise ValueError(
                f"problem {problem.id}: a prefix of {len(prefix)} tokens leaves nothing of "
                f"max_tokens={sampling.max_tokens}"
            )
        if not set(policy.eos_token_ids).isdisjoint(prefix):
            raise ValueError(f"problem {problem.id}: a prefix that holds an end token cannot be continued")
        if len(row) >= policy.max_length:
            raise ValueError(
                f"problem {problem.id}: its prompt of {len(row)} tokens leaves none for a completion "
                f"in the policy's context of {policy.max_length} tokens"
            )
        rows.append(row)
        limits.append(min(policy.max_length - len(row), left))
    ids, mask = policy.padded(rows, side="left")
    return Requests(
        prompt_ids=ids,
        prompt_mask=mask,
        limits=torch.tensor(limits, device=ids.device),
        group_size=group_size,
        prefixes=prefixes,
    )


class Completions:
    """B completions of up to T tokens, filled column by column; entries beyond a row's length are ignored."""

    def __init__(self, rows: int, width: int, device: torch.device) -> None:
        self.ids: Int[Tensor, "B T"] = torch.zeros(rows, width, dtype=torch.long, device=device)
        self.log_probs: Float[Tensor, "B T"] = torch.zeros(rows, width, device=device)
        self.lengths: Int[Tensor, " B"] = torch.zeros(rows, dtype=torch.long, device=device)
        self.stopped: Bool[Tensor, " B"] = torch.zeros(rows, dtype=torch.bool, device=device)
        self.states: Float[Tensor, "B D"] | None = None

    def write(
        self,
        rows: Int[Tensor, " b"],
        at: int | Int[Tensor, " b"],
        tokens: Int[Tensor, " b"],
        log_probs: Float[Tensor, " b"],
        *,
        alive: Bool[Tensor, " b"],
        ended: Bool[Tensor, " b"],
        limits: Int[Tensor, " b"],
    ) -> Bool[Tensor, " b"]:
        """Adds the token at place ``at`` of the rows that are ``alive``; returns which of them continue."""
        self.ids[rows, at] = tokens
        self.log_probs[rows, at] = log_probs
        self.lengths[rows] += alive
        stopped = ended & alive
        self.stopped[rows] |= stopped
        return alive & ~stopped & (self.lengths[rows] < limits)

    def add_states(self, rows: Int[Tensor, " b"], states: Float[Tensor, "b D"]) -> None:
        """Adds the hidden states of one token each to the sums of these rows, in fp32."""
        if self.states is None:
            self.states = torch.zeros(len(self.ids), states.shape[1], device=states.device)
        self.states[rows] += states.float()

    def batch(
        self, policy: CausalLMPolicy, problems: Sequence[Problem], requests: Requests, sampling: Sampling
    ) -> RolloutBatch:
        """The rollouts, as wide as the longest of them."""
        width = int(self.lengths.max())
        mask = torch.arange(width, device=self.ids.device) < self.lengths[:, None]
        ids = self.ids[:, :width].masked_fill(~mask, policy.pad_token_id)
        table = spelling(policy)
        rows = [row[:length] for row, length in zip(ids.tolist(), self.lengths.tolist(), strict=True)]
        return RolloutBatch(
            problems=list(problems),
            prompt_ids=requests.prompt_ids,
            prompt_mask=requests.prompt_mask,
            completion_ids=ids,
            mask=mask,
            old_log_probs=self.log_probs[:, :width].masked_fill(~mask, 0.0),
            temperature=sampling.scoring_temperature,
            pooled=None if self.states is None else self.states / self.lengths[:, None],
            texts=[text_of(table, row) for row in rows],
            token_spans=[token_spans(table, row) for row in rows],
            finish_reasons=["stop" if stopped else "length" for stopped in self.stopped.tolist()],
            group_size=requests.group_size,
        )


class CompletionNotifier:
    """Calls ``written`` for finished completions; does nothing without such a callback."""

    def __init__(self, completions: Completions, policy: CausalLMPolicy, written: Written | None) -> None:
        self.completions, self.written = completions, written
        self.table = () if written is None else spelling(policy)

    def __call__(self, rows: Sequence[int]) -> None:
        """Notifies that these rows are finished."""
        if self.written is None:
            return
        at = list(rows)
        ids, lengths = self.completions.ids[at].tolist(), self.completions.lengths[at].tolist()
        for row, tokens, length in zip(at, ids, lengths, strict=True):
            self.written(row, text_of(self.table, tokens[:length]))


def spelling(policy: CausalLMPolicy) -> Sequence[bytes]:
    """The bytes of each token of the policy; tokens that end a completion have none, special or not."""
    table = list(token_bytes(policy.tokenizer))
    for token in policy.eos_token_ids:
        if token < len(table):
            table[token] = b""
    return table


def ends_of(policy: CausalLMPolicy, sampling: Sampling, requests: Requests) -> Ends:
    """The end condition of each row."""
    stops = None
    if sampling.stop:
        stops = StopStrings(sampling.stop, spelling(policy), rows=len(requests), prefixes=requests.row_prefixes)
    return Ends(policy.eos_token_ids, stops, policy.device)


@torch.no_grad()
def pooled_states(
    policy: CausalLMPolicy, requests: Requests, rollouts: RolloutBatch, *, max_batch_tokens: int
) -> Float[Tensor, "B D"]:
    """Mean hidden states of the completions; ``max_batch_tokens`` bounds rows · (prompt + completion) of a pass."""
    parts = []
    with evaluating(policy.model):
        for rows in requests.chunks(max_batch_tokens):
            ids, mask, owner = requests.prompts_of(rows)
            span = slice(rows.start, rows.stop)
            completions, written = rollouts.completion_ids[span], rollouts.mask[span]
            states = policy.completion_states(ids, mask, completions, written, owner).own
            parts.append(mean_pool_rows(states.to(torch.promote_types(states.dtype, torch.float32)), written))
    return torch.cat(parts)
