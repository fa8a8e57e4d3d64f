"""A function of your own as the verifier: (problem, completion) → right or not, in processes that may come to any harm.

        returns True, or 1                                   ok
        returns False, or a number from 0 to less than 1     wrong
        returns a text                                       wrong, and the text is the reason
        takes longer than its limit                          timeout: a completion that cannot be judged is not right
        raises, returns anything else, ends its process      error; more of the last 1,000 than a share end the run

A timeout is the completion's doing, as in the house's own verifiers; an error is the function's, and a function that
fails on everything would otherwise look like a policy that can do nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from contrastive_reasoning.rewards.failures import ErrorShare
from contrastive_reasoning.rewards.function_pool import FunctionPool
from contrastive_reasoning.rewards.worker import Reply
from contrastive_reasoning.rewards.worker_pool import TIMEOUT
from contrastive_reasoning.rollout.spans import readable
from contrastive_reasoning.tasks.base import Problem, Verdict
from contrastive_reasoning.tasks.verify_worker import OK, WRONG

MODULE = "contrastive_reasoning.tasks.verify_worker"


class FunctionVerifier:
    """The verdict of ``function`` on each completion. Processes start when first needed and are used again.

    Args:
        function: (problem, completion) → True, False, a number from 0 to 1, or why it is wrong. It is imported by its
            name in every worker, so it is no lambda and stands in no other function; what it prints goes nowhere.
        workers: processes at most.
        limit_s: seconds of wall clock for one call.
        memory_mib: mebibytes that calls may take beyond what loading the function took, where the platform can tell.
        max_failures: the share of the last 1,000 completions judged, once they are 20 (or 4, all of them errors), that
            may end in an error.

    Raises:
        ValueError: for a number out of range, a function that no other process can import, or one that takes other
            arguments.
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
        self.errors = ErrorShare(max_failures, of="completions", key="task.verifier.max_failures")
        self.pool = FunctionPool(
            function,
            key="task.verifier.function",
            takes=("problem", "completion"),
            module=MODULE,
            workers=workers,
            limit_s=limit_s,
            memory_mib=memory_mib,
        )

    def __call__(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        """The verdict on each completion, that of its problem beside it.

        Raises:
            VerifierFailed: if too many end in an error.
            RewardFailed: if the function cannot be imported by a worker.
        """
        calls = list(zip(problems, completions, strict=True))
        verdicts = [verdict_of(reply) for reply in self.pool(calls)]
        self.errors.add(verdicts)
        return verdicts

    def close(self) -> None:
        """End all workers. A later call starts new ones."""
        self.pool.close()


def verdict_of(reply: Reply) -> Verdict:
    known = reply.status in (OK, WRONG, TIMEOUT)
    return Verdict(status=reply.status if known else "error", reason=readable(str(reply.said)))  # pyright: ignore[reportArgumentType]
