"""What writes completions: our engine, transformers' ``generate``, and whatever else has this one method."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.sampling import Sampling, Seed
from contrastive_reasoning.tasks.base import Problem

Written = Callable[[int, str], None]
"""Called once for each completion that has ended, with its row in the batch and its text."""


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
        written: Written | None = None,
    ) -> RolloutBatch:
        """``group_size`` completions of each problem, prompt-major; the same for the same seed and weights.

        With ``pooled`` the batch also holds the mean last hidden state of each completion, its last token included.
        With ``prefixes``, one for each problem, completions are continued: the tokens of a prefix are read behind the
        prompt and stand in ``prompt_ids``, the completions of the batch are what follows, up to what the prefix leaves
        of ``max_tokens``. An empty prefix is the same as none.
        ``written`` is called once for each completion, in any order, on the calling thread.

        Raises:
            ValueError: for no problems, a group size below 1, a prompt that does not fit the context, or a prefix that
                leaves nothing to write.
        """
        ...
