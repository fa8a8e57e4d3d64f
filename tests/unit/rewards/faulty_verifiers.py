"""Verifiers and TRL rewards that come to harm: what the completion says is what happens. Imported by workers."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from contrastive_reasoning.tasks.base import Problem
from tests.unit.rewards.faulty_rewards import HARM

VERDICTS: dict[str, Any] = {"right": True, "no": False, "half": 0.5, "why": "uses 7 twice", "empty": "", "two": 2}


def verdict_or_harm(problem: Problem, completion: str, *, right: str = "") -> Any:
    """The verdict that the completion names; the harm; or whether it is the answer."""
    if completion in HARM:
        return HARM[completion]()
    return VERDICTS.get(completion, completion in (problem.answer, right))


def quotes(problem: Problem, completion: str) -> str:
    """The reason is the completion itself."""
    return completion


def lengths(prompts: Any, completions: Any, **columns: Any) -> Any:
    """The harm that the first completion names; or each completion's length, None for an empty one."""
    if completions[0] in HARM:
        return HARM[completions[0]]()
    return [float(len(text)) if text else None for text in completions]


async def lengths_in_a_while(completions: list[str], **columns: Any) -> list[float]:
    await asyncio.sleep(0.01)
    return [float(len(text)) for text in completions]


def too_few(completions: list[str], **columns: Any) -> list[float]:
    return [1.0]


def process(completions: list[str]) -> list[float]:
    return [float(os.getpid())] * len(completions)


def roles(prompts: Any, completions: Any) -> list[float]:
    """Reads conversations: 10 for a prompt that begins with a system's message, 1 for an answer of the assistant."""
    pairs = zip(prompts, completions, strict=True)
    return [10.0 * (p[0]["role"] == "system") + (c == [{"role": "assistant", "content": "hi"}]) for p, c in pairs]


def says_what_it_got(**given: Any) -> list[float]:
    raise ValueError(", ".join(sorted(given)))


def solution_in(completions: list[str], solution: list[str], weight: float = 1.0) -> list[float]:
    return [weight * (gold in text) for text, gold in zip(completions, solution, strict=True)]


def tokens(completion_ids: list[list[int]]) -> list[float]:
    return [float(len(ids)) for ids in completion_ids]
