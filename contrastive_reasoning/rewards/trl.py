"""A reward function in the form of TRL's GRPOTrainer, called on whole batches in a separate process.

        function(prompts=…, completions=…, completion_ids=…, <columns>=…, **kwargs) → [0.5, None, …]

TRL's documentation (GRPOTrainer, "Using a custom reward function") describes such a function. In this project:

        prompts, completions    texts; with ``messages: true`` lists of {role, content}, as for conversational data
        completion_ids          the tokens of each completion
        columns                 one list per column, as long as the completions: the problems' fields, and ``answer``
                                and ``id`` unless a field has that name
        None                    not applicable: it adds nothing to a sum of rewards, and counts as 0 on its own
        async                   awaited
        trainer_state, log_…    not passed: the reward cannot depend on them

A keyword is passed only if the function takes it. If a call fails or takes too long, the whole batch is left out.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from contrastive_reasoning.ranges import within
from contrastive_reasoning.rewards.base import (
    Credit,
    FailureWarning,
    failure_metrics,
    fill_with_mean,
    refuse_too_many,
)
from contrastive_reasoning.rewards.function import ONE_COMPLETION, failure_of
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, messages_of
from contrastive_reasoning.workers.failures import RewardFailed
from contrastive_reasoning.workers.functions import NUMBERS, FunctionPool


class TRLReward:
    """The numbers that a function written for TRL returns for the completions. It runs in one process that is reused.

    Args:
        name: the name of the part, logged as ``train/reward/<name>``.
        function: as above; see ``FunctionPool``, also for ``limit_s`` and ``memory_mib``, which apply to one batch.
        messages: whether the function takes conversations; otherwise it takes texts.
        columns: keyword of the function → column, if the names differ: ``answer``, ``id``, or a field of the problems.
        max_failures: the share of the rollouts of all ranks that may fail. A failed call fails all rollouts of its
            rank, so on one rank any share below 1 ends the run.

    Raises ValueError for a number out of range, or a function that no other process can import.
    """

    def __init__(
        self,
        *,
        name: str,
        function: Callable[..., Sequence[float | None]],
        messages: bool,
        columns: Mapping[str, str],
        limit_s: float,
        memory_mib: int,
        max_failures: float,
    ) -> None:
        self.name = name
        self.function = function
        self.messages = messages
        self.columns = dict(columns)
        within("[0, 1]", max_failures=max_failures)
        self.max_failures = max_failures
        self.pool = FunctionPool(
            function, kind="numbers", key="reward.function", workers=1, limit_s=limit_s, memory_mib=memory_mib
        )
        self._warn = FailureWarning("reward.function")

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        """Returns the credit of the batch. If the call fails, all of its rollouts have failed.

        Raises RewardFailed if the function needs a keyword that the problems do not have, if the worker cannot import
        the function, or if more rollouts than ``max_failures`` fail.
        """
        (reply,) = self.pool([(self.arguments(rollouts), len(rollouts))])
        failures = {} if reply.status == NUMBERS else dict.fromkeys(range(len(rollouts)), failure_of(reply))
        refuse_too_many(failures, len(rollouts), limit=self.max_failures)
        self._warn(failures)
        numbers: list[float | None] = [None] * len(rollouts) if failures else reply.value
        like = rollouts.old_log_probs
        return Credit(
            outcome=like.new_tensor([number or 0.0 for number in numbers]),
            parts={self.name: like.new_tensor(fill_with_mean(numbers))},
            failures=failures,
            metrics={
                **failure_metrics(failures, len(rollouts)),
                f"reward/{self.name}_not_applicable": 0.0 if failures else numbers.count(None) / len(rollouts),
            },
        )

    def close(self) -> None:
        """Ends the worker. A later call starts a new one."""
        self.pool.close()

    def arguments(self, rollouts: RolloutBatch) -> dict[str, Any]:
        """Returns the keyword arguments of one call, restricted to those that the function takes.

        Raises RewardFailed if the function needs one that does not exist or ``columns`` names an unknown column.
        """
        problems = [rollouts.problem_of(row) for row in range(len(rollouts))]
        columns = {"answer": [problem.answer for problem in problems], "id": [problem.id for problem in problems]}
        columns |= columns_of(problems)
        there = f"there are {', '.join(sorted(columns))}"
        if unknown := [name for name in self.columns.values() if name not in columns]:
            raise RewardFailed(f"reward.columns names {unknown[0]}, which the problems do not have; {there}")
        columns |= {keyword: columns[name] for keyword, name in self.columns.items()}
        given = columns | {
            "prompts": [
                [message._asdict() for message in messages_of(problem.prompt)] if self.messages else str(problem.prompt)
                for problem in problems
            ],
            "completions": [
                [{"role": "assistant", "content": text}] if self.messages else text for text in rollouts.texts
            ],
            "completion_ids": [
                ids[kept].tolist() for ids, kept in zip(rollouts.completion_ids, rollouts.mask, strict=True)
            ],
        }
        taken, needed = keywords(self.function)
        if missing := sorted(needed - given.keys()):
            if set(ONE_COMPLETION) <= needed:
                raise RewardFailed("reward.function takes (problem, completion): such a function needs reward=function")
            raise RewardFailed(
                f"reward.function takes {missing[0]}, which the problems do not have; {there}: "
                f"reward.columns={{{missing[0]}: NAME}} names the column that it is"
            )
        return given if taken is None else {name: value for name, value in given.items() if name in taken}


def keywords(function: Callable[..., Any]) -> tuple[set[str] | None, set[str]]:
    """Returns the keywords that a function takes (None for any) and those that it requires."""
    parameters = inspect.signature(function).parameters.values()
    named = [one for one in parameters if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    needed = {one.name for one in named if one.default is one.empty}
    anything = any(one.kind is one.VAR_KEYWORD for one in parameters)
    return (None if anything else {one.name for one in named}), needed


def columns_of(problems: Sequence[Problem]) -> dict[str, list[Any]]:
    """Returns the fields of the problems as columns, with None if a problem lacks a field that another has."""
    names = dict.fromkeys(name for problem in problems for name in problem.fields if name.isidentifier())
    return {name: [problem.fields.get(name) for problem in problems] for name in names}
