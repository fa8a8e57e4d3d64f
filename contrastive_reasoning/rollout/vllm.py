"""Completions drawn by a vLLM server over HTTP: token-in, token-out, with the weights checked before and after.

vLLM pins its own version of torch, so it needs a separate environment; docs/vllm.md describes how to start it. The
engine sends no request before the first rollouts; a run compares the server's model with the policy before its first
stage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.requests import Completions, Requests, Written, encode, pooled_states, spelling
from contrastive_reasoning.rollout.sampling import (
    Sampling,
    Seed,
    StopStrings,
    derived_seed,
    earlier_occurrences,
    length_of,
    names_of,
)
from contrastive_reasoning.rollout.spans import text_of
from contrastive_reasoning.rollout.vllm_client import (
    JSONServer,
    Report,
    ServedPolicy,
    ServerError,
    check_log_probs,
    on_every_rank,
    on_first_rank,
)
from contrastive_reasoning.tasks.base import Problem

MOST_STOPS = 4
"""Maximum number of stop strings in a request to vLLM."""


class VLLMEngine:
    """An engine with the interface of ``Engine``. Its log-probs are the server's, with the server's kernels and dtype.

    Draws are a function of the seed if the server's kernels do not depend on the rest of its batch.

    Args:
        url: address of the server, ``http://host:port``.
        weights_folder: where weights are written for a transfer; the server must see the same path. None: shared memory
            (``/dev/shm``), if it has space for them and the server can read them there, else ``disk_folder``.
        disk_folder: the folder in place of shared memory.
        sleep_level: put the server to sleep after each draw, so that trainer and server can share a device: 1 keeps its
            weights in main memory, 2 drops them; None leaves it awake.
        concurrency: prompts requested at a time.
        timeout: seconds that one answer may take: the completions of one prompt, or one transfer of the weights.
        retries: repeats after a connection that was refused or closed.
        max_batch_tokens: bounds rows · (prompt + completion) of the passes that compute pooled states.
    """

    draws_for_all_ranks = True

    def __init__(
        self,
        *,
        url: str,
        weights_folder: str | None,
        disk_folder: str,
        sleep_level: int | None,
        concurrency: int,
        timeout: float,
        retries: int,
        max_batch_tokens: int,
    ) -> None:
        if sleep_level not in (None, 1, 2):
            raise ValueError(f"rollout.engine.sleep_level must be null, 1 or 2, got {sleep_level}")
        at_least(1, **{"rollout.engine.concurrency": concurrency, "rollout.engine.max_batch_tokens": max_batch_tokens})
        self.server = JSONServer(url=url, timeout=timeout, retries=retries)
        folder = None if weights_folder is None else Path(weights_folder).expanduser()
        self.served = ServedPolicy(self.server, folder, disk=Path(disk_folder).expanduser())
        self.sleep_level = sleep_level
        self.concurrency = concurrency
        self.max_batch_tokens = max_batch_tokens

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
        """See ``RolloutEngine``. With ``pooled`` the trainer's own passes compute the states.

        Raises ServerError if the server cannot be reached, holds other weights, or returns an invalid answer.
        """
        requests = encode(policy, problems, group_size, sampling, prefixes)
        if self.sleep_level is not None:
            on_every_rank(torch.cuda.empty_cache)  # a server that sleeps between rollouts shares all devices
        report = on_first_rank(lambda: self._ready(policy))
        check_log_probs(report.logprobs_mode, sampling)
        seeds = request_seeds(problems, seed, prefixes=requests.prefixes, earlier=earlier)
        drawn = on_every_rank(lambda: self._draw(policy, problems, requests, sampling, seeds, written))
        on_first_rank(self._done)
        rollouts = _fill_rows(drawn, requests, policy).batch(policy, problems, requests, sampling)
        if not pooled:
            return rollouts
        states = pooled_states(policy, requests, rollouts, max_batch_tokens=self.max_batch_tokens)
        return replace(rollouts, pooled=states)

    def _ready(self, policy: CausalLMPolicy) -> Report:
        """Wakes the server if it sleeps, and makes sure that it holds the policy's weights."""
        if self.sleep_level is None:
            return self.served.bring(policy)
        self.server.post("/wake_up?tags=weights")  # its key-value cache must wait until the weights are loaded
        report = self.served.bring(policy)
        torch.cuda.empty_cache()
        self.server.post("/wake_up?tags=kv_cache")
        return report

    def _done(self) -> None:
        """Checks that the server still holds the weights, so the draws are the policy's; puts it to sleep."""
        self.served.check()
        if self.sleep_level is not None:
            self.server.post(f"/sleep?level={self.sleep_level}")
        if self.sleep_level == 2:
            self.served.forget()

    def _draw(
        self,
        policy: CausalLMPolicy,
        problems: Sequence[Problem],
        requests: Requests,
        sampling: Sampling,
        seeds: Sequence[int],
        written: Written | None,
    ) -> list[Drawn]:
        """The B completions, prompt-major; ``written`` is called in this order, too."""
        reader = AnswerReader(policy, sampling)
        table = () if written is None else spelling(policy)

        def group(p: int) -> list[Drawn]:
            prompt = requests.prompt_ids[p][requests.prompt_mask[p]].tolist()
            limit = int(requests.limits[p])
            # vLLM rejects several greedy completions of a prompt, which are all the same: one represents its group
            size = 1 if sampling.greedy else requests.group_size
            body = request_body(policy, prompt, group_size=size, limit=limit, sampling=sampling, seed=seeds[p])
            answer = self.server.post("/v1/completions", body)
            rows = reader.read(answer, prompt=prompt, group_size=size, limit=limit, prefix=requests.prefixes[p])
            return rows * (requests.group_size // size)

        with ThreadPoolExecutor(self.concurrency) as pool:
            drawn: list[Drawn] = []
            for rows in pool.map(group, range(len(problems))):
                drawn += rows
                if written is not None:
                    for row, one in enumerate(rows, start=len(drawn) - len(rows)):
                        written(row, text_of(table, one.ids))
            return drawn


def request_seeds(
    problems: Sequence[Problem],
    seed: Seed,
    *,
    prefixes: Sequence[Sequence[int]] = (),
    earlier: Sequence[int] | None = None,
) -> list[int]:
    """One seed per prompt, from (seed, problem, prefix, number of earlier occurrences of both); vLLM adds 0 … G−1."""
    names = names_of(problems, prefixes)
    counts = earlier_occurrences(names) if earlier is None else earlier
    # vLLM adds to a seed, and the sum must fit
    return [derived_seed((*seed, *name, count)) >> 1 for name, count in zip(names, counts, strict=True)]


def request_body(
    policy: CausalLMPolicy, prompt: list[int], *, group_size: int, limit: int, sampling: Sampling, seed: int
) -> dict[str, Any]:
    """A request to ``/v1/completions``. It sets every option that a model's generation config could set otherwise."""
    return {
        "prompt": prompt,
        "n": group_size,
        "max_tokens": limit,
        "temperature": sampling.temperature,
        "top_k": sampling.top_k or 0,
        "top_p": sampling.top_p,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "seed": seed,
        "stop": list(sampling.stop)[:MOST_STOPS],  # the reader cuts completions at the others
        "stop_token_ids": list(policy.eos_token_ids),
        "logprobs": 0,  # of the drawn token only
        "return_token_ids": True,
    }


def _fill_rows(drawn: Sequence[Drawn], requests: Requests, policy: CausalLMPolicy) -> Completions:
    completions = Completions(len(requests), int(requests.limits.max()), policy.device)
    for row, completion in enumerate(drawn):
        length = len(completion.ids)
        completions.ids[row, :length] = torch.tensor(completion.ids)
        completions.log_probs[row, :length] = torch.tensor(completion.log_probs)
        completions.lengths[row] = length
        completions.stopped[row] = completion.stopped
    return completions


HIGHEST = 1e-3
"""Upper bound of a valid log-prob; rounding in the server's dtype may put one slightly above 0."""
LOWEST = -9999.0
"""What vLLM writes for −∞, the log-prob of a token that could not be drawn."""


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """One completion, its end token included."""

    ids: list[int]
    log_probs: list[float]
    stopped: bool
    """Whether it ended by itself, not at its limit."""


class AnswerReader:
    """Reads the completions of one prompt, by the policy's own vocabulary and its rule for where one ends."""

    def __init__(self, policy: CausalLMPolicy, sampling: Sampling) -> None:
        self.vocabulary = int(policy.model.get_input_embeddings().num_embeddings)  # pyright: ignore
        self.ends = frozenset(policy.eos_token_ids)
        self.stop, self.table = sampling.stop, spelling(policy)

    def read(
        self, answer: Any, *, prompt: Sequence[int], group_size: int, limit: int, prefix: Sequence[int] = ()
    ) -> list[Drawn]:
        """The completions in the order of their index.

        ``prefix`` is the part at the end of the prompt that already belongs to the completion.

        Raises ServerError if something is missing or does not match the request.
        """
        choices = answer.get("choices") if isinstance(answer, Mapping) else None
        if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
            raise ServerError(f"the server's answer has no list of choices: {str(answer)[:200]}")
        if sorted(str(choice.get("index")) for choice in choices) != sorted(map(str, range(group_size))):
            raise ServerError(f"{group_size} completions were requested, the server returned {len(choices)}")
        in_order = sorted(choices, key=lambda choice: choice["index"])
        return [self._read_choice(choice, prompt, limit, prefix) for choice in in_order]

    def _read_choice(
        self, choice: Mapping[str, Any], prompt: Sequence[int], limit: int, prefix: Sequence[int]
    ) -> Drawn:
        if choice.get("prompt_token_ids") != list(prompt):
            raise ServerError("the server did not return the prompt's token ids as they were sent (return_token_ids)")
        ids = self._ids(choice.get("token_ids"), limit)
        log_probs = _log_probs((choice.get("logprobs") or {}).get("token_logprobs"), len(ids))
        length = length_of(ids, self.ends, StopStrings(self.stop, self.table, rows=1, prefixes=[prefix]))
        reason = choice.get("finish_reason")
        if length is None and (reason != "length" or len(ids) < limit):
            raise ServerError(
                f"a completion ended after {len(ids)} of {limit} tokens with finish_reason {reason!r}, "
                "but with no end token or stop string of the policy's"
            )
        return Drawn(ids=ids[:length], log_probs=log_probs[:length], stopped=length is not None)

    def _ids(self, ids: Any, limit: int) -> list[int]:
        if not isinstance(ids, list) or not all(type(token) is int for token in ids):
            raise ServerError("a completion of the server's has no token_ids (return_token_ids)")
        if not 1 <= len(ids) <= limit:
            raise ServerError(f"a completion of the server's has {len(ids)} tokens, not 1 to {limit}")
        strange = [token for token in ids if not 0 <= token < self.vocabulary]
        if strange:
            raise ServerError(f"the server drew token {strange[0]}, the policy's vocabulary has {self.vocabulary}")
        return ids


def _log_probs(values: Any, count: int) -> list[float]:
    if not isinstance(values, list) or len(values) != count:
        found = len(values) if isinstance(values, list) else "no"
        raise ServerError(f"a completion of {count} tokens came with {found} token_logprobs")
    for value in values:
        if not isinstance(value, int | float) or not math.isfinite(value) or not LOWEST < value <= HIGHEST:
            raise ServerError(f"a token came with the log-prob {value!r}")
    return [float(value) for value in values]
