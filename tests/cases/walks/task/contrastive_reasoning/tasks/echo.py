"""Repeat a number."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import count, islice

from contrastive_reasoning.tasks.base import OK, Problem, Split, Step, Verdict, split_of, unparsed, wrong


class EchoTask:
    """Numbers from 0 on; the split of a number is a hash of it."""

    name = "echo"

    def __init__(self, *, train_problems: int, validation_problems: int, test_problems: int) -> None:
        self.sizes = {"train": train_problems, "validation": validation_problems, "test": test_problems}

    def problems(self, split: Split) -> Sequence[Problem]:
        own = (number for number in count() if split_of(f"echo {number}") == split)
        first = islice(own, self.sizes[split])
        return [Problem(id=str(number), prompt=f"Repeat {number}\n", answer=str(number)) for number in first]

    def verify(self, problem: Problem, completion: str) -> Verdict:
        written = completion.strip()
        if not written.isdecimal():
            return unparsed("not a number")
        return OK if written == problem.answer else wrong("another number")

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        return []

    def scores(self, problem: Problem, completion: str) -> Mapping[str, float]:
        return {}
