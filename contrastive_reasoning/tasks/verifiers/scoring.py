"""The rewards of an environment of verifiers, on one prompt and one completion, in a worker process.

They get the library's own record of a finished rollout, a trace, and no runtime. They are coroutines, which run at the
same time. What a scorer raises is not caught, so that completion alone has no score.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from typing import Any

from contrastive_reasoning.tasks.answer.extract import THOUGHT_ENDS, without_thoughts
from contrastive_reasoning.tasks.base import Problem, messages_of
from contrastive_reasoning.tasks.verifiers.environment import library

ROUNDING = 1e-6
"""Relative difference from the full score that counts as rounding."""


def score(
    problem: Problem, completion: str, *, kind: type | None = None, thought_ends: Sequence[str] = THOUGHT_ENDS
) -> float:
    """A reward function: the weighted sum of the environment's rewards for a completion.

    Args:
        problem: a problem of ``verifiers_task``.
        completion: text that a model wrote, so this runs in a worker process.
        kind: the type of the tasks. It is not used, but a process that loads this function with it has imported the
            environment, so that its first call takes no longer than others.
        thought_ends: tags that end a completion's thoughts, which become the reply's ``reasoning_content``.

    Raises ValueError for a problem of another task.
    """
    if "task" not in problem.fields:
        raise ValueError("reward=verifiers scores problems of task=verifiers only")
    task = problem.fields["task"]
    trace = trace_of(task, problem.prompt, completion, thought_ends)
    asyncio.run(task.score(trace))
    return float(trace.reward)


def verify(
    problem: Problem,
    completion: str,
    *,
    full_score: float,
    highest: bool,
    kind: type | None = None,
    thought_ends: Sequence[str] = THOUGHT_ENDS,
) -> float:
    """The share of ``full_score`` that a completion has, from 0 to 1; only 1 is correct. Otherwise as ``score``.

    Raises ValueError for a higher total if ``full_score`` is said to be the ``highest``. It is the sum of the weights
    then, and a reward that returns more than 1, or several numbers, could make wrong answers correct.
    """
    found = score(problem, completion, kind=kind, thought_ends=thought_ends)
    if highest and found > full_score * (1 + ROUNDING):
        raise ValueError(f"the rewards total {found:g}, more than the sum of their weights: set task.full_score")
    return 1.0 if found >= full_score * (1 - ROUNDING) else max(0.0, found / full_score)


def scorer(*, environment: str | None, thought_ends: Sequence[str] = THOUGHT_ENDS) -> Callable[..., float]:
    """``score`` with the type of an environment's tasks; None: of no environment."""
    kind = None if environment is None else library().task_type(environment)
    return partial(score, kind=kind, thought_ends=tuple(thought_ends))


def trace_of(task: Any, prompt: str, completion: str, thought_ends: Sequence[str]) -> Any:
    """The trace of a rollout that ended with its first reply: the prompt's messages and the completion."""
    vf = library()
    reply = without_thoughts(completion, thought_ends)
    thoughts = completion[: len(completion) - len(reply)]
    messages = [{"role": role, "content": content} for role, content in messages_of(prompt)]
    nodes = [
        vf.MessageNode(message=message, parent=place - 1 if place else None) for place, message in enumerate(messages)
    ]
    last = vf.AssistantMessage(content=reply, reasoning_content=thoughts or None)
    trace = vf.Trace(
        task=vf.TraceTask(type=type(task).__name__, data=task.data, key=task.key, hash=task.hash),
        state=import_module("verifiers.v1.state").state_cls(type(task))(),
        agent=vf.AgentInfo(config=vf.AgentConfig(harness=vf.HarnessConfig(id="null"), runtime=vf.SubprocessConfig())),
        nodes=[*nodes, vf.MessageNode(message=last, parent=len(nodes) - 1, sampled=True)],
        ok=True,
    )
    trace.stop("agent_completed")
    return trace
