"""What a vLLM server answers, read into completions: nothing is believed that the rollout batch depends on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.completions import spelling
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.rollout.stop import StopStrings
from contrastive_reasoning.rollout.vllm_http import ServerError

HIGHEST = 1e-3
"""A log-prob above it is none; rounding in the server's dtype may lift one slightly above 0."""
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
    """Reads the completions of one prompt, by the policy's own vocabulary and its rule for where a completion ends."""

    def __init__(self, policy: CausalLMPolicy, sampling: Sampling) -> None:
        self.vocabulary = int(policy.model.get_input_embeddings().num_embeddings)  # pyright: ignore
        self.ends = frozenset(policy.eos_token_ids)
        self.stop, self.table = sampling.stop, spelling(policy)

    def read(
        self, answer: Any, *, prompt: Sequence[int], group_size: int, limit: int, begun: Sequence[int] = ()
    ) -> list[Drawn]:
        """The completions in the order of their index.

        Args:
            answer: of ``/v1/completions``.
            prompt: the token ids that were sent.
            group_size: completions asked for.
            limit: tokens that each may have.
            begun: the end of the prompt that belongs to the completion already.

        Raises:
            ServerError: where something is missing, or is not what was asked for.
        """
        choices = answer.get("choices") if isinstance(answer, Mapping) else None
        if not isinstance(choices, list) or not all(isinstance(choice, Mapping) for choice in choices):
            raise ServerError(f"the server's answer has no list of choices: {str(answer)[:200]}")
        if sorted(str(choice.get("index")) for choice in choices) != sorted(map(str, range(group_size))):
            raise ServerError(f"{group_size} completions were asked for, the server answered with {len(choices)}")
        in_order = sorted(choices, key=lambda choice: choice["index"])
        return [self._drawn(choice, prompt, limit, begun) for choice in in_order]

    def _drawn(self, choice: Mapping[str, Any], prompt: Sequence[int], limit: int, begun: Sequence[int]) -> Drawn:
        if choice.get("prompt_token_ids") != list(prompt):
            raise ServerError("the server did not return the prompt's token ids as they were sent (return_token_ids)")
        ids = self._ids(choice.get("token_ids"), limit)
        log_probs = _log_probs((choice.get("logprobs") or {}).get("token_logprobs"), len(ids))
        length = self.length(ids, begun)
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

    def length(self, ids: Sequence[int], begun: Sequence[int] = ()) -> int | None:
        """Tokens up to the one that ended the completion; None if none did."""
        stops = StopStrings(self.stop, self.table, rows=1, begun=[begun])
        for n, token in enumerate(ids, start=1):
            if token in self.ends or stops.completed([0], [token])[0]:
                return n
        return None


def _log_probs(values: Any, count: int) -> list[float]:
    if not isinstance(values, list) or len(values) != count:
        found = len(values) if isinstance(values, list) else "no"
        raise ServerError(f"a completion of {count} tokens came with {found} token_logprobs")
    for value in values:
        if not isinstance(value, int | float) or not math.isfinite(value) or not LOWEST < value <= HIGHEST:
            raise ServerError(f"a token came with the log-prob {value!r}")
    return [float(value) for value in values]
