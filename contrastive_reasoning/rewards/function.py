"""A user's function as the reward or the verifier: (problem, completion) → …, called in processes that may crash.

        the function                                     as the reward       as the verifier
        returns a finite number, or true or false        the number          1 and true: ok; 0 to < 1 and false: wrong
        returns a text that is not empty                 failed: error       wrong, for that reason
        raises, or returns anything else                 failed: error       error
        exits, or exceeds its memory limit               failed: error       error; the process is replaced
        takes longer than its limit                      failed: timeout     timeout; the process is replaced

The failure of a reward does not depend on the completion's quality, so a failed rollout is left out (see
``Credit.failures``). A verifier attributes a timeout to the completion, which then counts as not correct, as in the
verifiers of the built-in tasks. It attributes an error to the function. A function that fails on everything would look
like a policy that solves nothing, so more errors than a share of the last 1,000 verdicts end the run.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from contrastive_reasoning.ranges import within
from contrastive_reasoning.rewards.base import (
    Credit,
    FailureWarning,
    failure_metrics,
    fill_with_mean,
    refuse_too_many,
)
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.rollout.spans import readable
from contrastive_reasoning.tasks.base import Problem, Verdict
from contrastive_reasoning.workers.failures import ErrorShare
from contrastive_reasoning.workers.functions import NUMBER, OK, WRONG, FunctionPool, name_of
from contrastive_reasoning.workers.pool import TIMEOUT, Reply

ONE_COMPLETION = ("problem", "completion")
"""The argument names of a call for one completion."""


class FunctionReward:
    """The number that ``function`` returns for each completion: (problem, completion) → a finite number.

    The part is logged as ``train/reward/<name>``; ``max_failures`` is the share of a batch's rollouts that may fail.
    For the other arguments see ``FunctionPool``, which also raises ValueError for them.
    """

    def __init__(
        self,
        *,
        name: str,
        function: Callable[[Problem, str], float],
        workers: int,
        limit_s: float,
        memory_mib: int,
        max_failures: float,
    ) -> None:
        key = "reward.function"
        require_one_completion(function, key, "reward=trl")
        self.name = name
        within("[0, 1]", max_failures=max_failures)
        self.max_failures = max_failures
        self.pool = FunctionPool(
            function, kind="number", key=key, workers=workers, limit_s=limit_s, memory_mib=memory_mib
        )
        self._warn = FailureWarning(key)

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        """Returns the credit of the batch, with the failed rollouts left out.

        Raises RewardFailed if too many rollouts fail, or if a worker cannot import the function.
        """
        replies = self.pool([(rollouts.problem_of(row), text) for row, text in enumerate(rollouts.texts)])
        failures = {row: failure_of(reply) for row, reply in enumerate(replies) if reply.status != NUMBER}
        refuse_too_many(failures, len(rollouts), limit=self.max_failures)
        self._warn(failures)
        numbers = fill_with_mean([reply.value if reply.status == NUMBER else None for reply in replies])
        outcome = rollouts.old_log_probs.new_tensor(numbers)
        return Credit(
            outcome=outcome,
            parts={self.name: outcome},
            failures=failures,
            metrics=failure_metrics(failures, len(rollouts)),
        )

    def close(self) -> None:
        """Ends all workers. A later call starts new ones."""
        self.pool.close()


class FunctionVerifier:
    """The verdict of ``function``: (problem, completion) → True, False, a number from 0 to 1, or why it is wrong.

    ``max_failures`` is the share of the last 1,000 judged completions that may end in an error. It applies from 20
    completions on, or from 4 if all of them are errors. For the other arguments see ``FunctionPool``, which also raises
    ValueError for them.
    """

    def __init__(
        self,
        *,
        function: Callable[[Problem, str], bool | float | str],
        workers: int,
        limit_s: float,
        memory_mib: int,
        max_failures: float,
    ) -> None:
        key = "task.verifier.function"
        require_one_completion(function, key)
        self.errors = ErrorShare(max_failures, of="completions", key="task.verifier.max_failures")
        self.pool = FunctionPool(
            function, kind="verdict", key=key, workers=workers, limit_s=limit_s, memory_mib=memory_mib
        )

    def __call__(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """Returns the verdict on each completion; ``problems`` holds the problem of each.

        Raises:
            VerifierFailed: if too many verdicts are errors.
            RewardFailed: if a worker cannot import the function.
        """
        calls = list(zip(problems, completions, strict=True))
        verdicts = [_verdict_of(reply) for reply in self.pool(calls)]
        self.errors.add(verdicts)
        return verdicts

    def close(self) -> None:
        """Ends all workers. A later call starts new ones."""
        self.pool.close()


def require_one_completion(function: Callable[..., Any], key: str, batch_choice: str | None = None) -> None:
    """Raises ValueError, with name and signature, for a function that cannot be called with (problem, completion).

    ``batch_choice`` is the configuration choice for a function of whole batches in TRL's form.
    """
    signature = inspect.signature(function)
    sentence = f"{key} must take (problem, completion), {name_of(function)}{signature} does not"
    of_batches = f"; a function in TRL's form needs {batch_choice}" if batch_choice else ""
    if {"prompts", "completions"} <= signature.parameters.keys():  # it would treat one completion as a batch
        raise ValueError(sentence + of_batches)
    try:
        signature.bind(*ONE_COMPLETION)
    except TypeError as error:
        trl = "completions" in signature.parameters
        raise ValueError(f"{sentence}: {error}{of_batches if trl else ''}") from error


def failure_of(reply: Reply) -> Verdict:
    return Verdict(status="timeout" if reply.status == TIMEOUT else "error", reason=str(reply.value))


def _verdict_of(reply: Reply) -> Verdict:
    known = reply.status in (OK, WRONG, TIMEOUT)
    return Verdict(status=reply.status if known else "error", reason=readable(str(reply.value)))  # pyright: ignore[reportArgumentType]
