"""A function of your own as the reward: (problem, completion) → a number, in processes that may come to any harm.

        returns a finite number                                    the reward
        raises, or returns None, NaN, ∞, a string, a list          failed: error
        ends its process, takes more memory than it may            failed: error, and the process is replaced
        takes longer than its limit                                failed: timeout, and the process is replaced

That a reward fails says nothing of the completion, so a failed rollout is left out (see ``Credit.failures``). A
verifier of the house is another matter: an answer on which it would compute for ever is a wrong answer.
"""

from __future__ import annotations

from collections.abc import Callable

from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rewards.failures import (
    STATUSES,
    Warned,
    checked_share,
    failure_metrics,
    filled,
    refuse_too_many,
)
from contrastive_reasoning.rewards.function_pool import FunctionPool
from contrastive_reasoning.rewards.worker import Reply
from contrastive_reasoning.rewards.worker_pool import TIMEOUT
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Verdict
from contrastive_reasoning.tasks.function_worker import NUMBER

MODULE = "contrastive_reasoning.tasks.function_worker"


class FunctionReward:
    """What ``function`` returns for each completion. Processes start when first needed and are used again.

    Args:
        name: of the part, logged as ``train/reward/<name>``.
        function: (problem, completion) → a finite number. It is imported by its name in every worker, so it is no
            lambda and stands in no other function; what it prints goes nowhere.
        workers: processes at most.
        limit_s: seconds of wall clock for one call.
        memory_mib: mebibytes that calls may take beyond what loading the function took, where the platform can tell.
        max_failures: the share of a batch's rollouts that may fail.

    Raises:
        ValueError: for a number out of range, a function that no other process can import, or one that takes other
            arguments.
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
        self.name = name
        self.function = function
        self.max_failures = checked_share(max_failures)
        self.pool = FunctionPool(
            function,
            key="reward.function",
            takes=("problem", "completion"),
            module=MODULE,
            workers=workers,
            limit_s=limit_s,
            memory_mib=memory_mib,
        )
        self._warn = Warned("reward.function")

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        """The credit of the batch, the rollouts that failed left out.

        Raises:
            RewardFailed: if too many fail, or the function cannot be imported by a worker.
        """
        replies = self.pool([(rollouts.problem_of(row), text) for row, text in enumerate(rollouts.texts)])
        failures = {row: failure_of(reply) for row, reply in enumerate(replies) if reply.status != NUMBER}
        refuse_too_many(failures, len(rollouts), limit=self.max_failures)
        self._warn(failures)
        numbers = filled([reply.said if reply.status == NUMBER else None for reply in replies])
        outcome = rollouts.old_log_probs.new_tensor(numbers)
        return Credit(
            outcome=outcome,
            parts={self.name: outcome},
            failures=failures,
            metrics=failure_metrics(failures, len(rollouts)),
        )

    def close(self) -> None:
        """End all workers. A later call starts new ones."""
        self.pool.close()


def failure_of(reply: Reply) -> Verdict:
    timeout, error = STATUSES
    return Verdict(status=timeout if reply.status == TIMEOUT else error, reason=str(reply.said))
