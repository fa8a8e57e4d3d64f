"""Countdown posed by one bare line, whatever the form of its completions.

The prompt that teaches the search by two worked examples has some 1,800 tokens, ten times as many as a search of three
numbers, and it says that pairs are taken in list order. A policy that was warmed up on searches needs neither.
"""

from __future__ import annotations

from collections.abc import Sequence

from contrastive_reasoning.tasks.countdown.problem import CountdownProblem
from contrastive_reasoning.tasks.countdown.prompt import problem_prompt
from contrastive_reasoning.tasks.countdown.task import CountdownTask


class BareCountdownTask(CountdownTask):
    """``CountdownTask`` with the prompt of the ``direct`` format: ``3 8 4 = 28``."""

    def problem(self, numbers: Sequence[int], target: int, *, source: str = "given") -> CountdownProblem:
        prompt = problem_prompt(numbers, target, style="direct")
        return CountdownProblem(numbers, target, style=self.style, prompt=prompt, source=source)
