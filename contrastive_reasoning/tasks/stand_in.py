"""A problem set, or generated problems in its place on a laptop, offline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from contrastive_reasoning.tasks.base import Problem, Split, Step, Task, Verdict, VerifiesTogether

Source = Literal["hub", "generated"]
SIZES = ("train_problems", "validation_problems", "test_problems")


@dataclass(frozen=True, kw_only=True)
class StandInTask:
    """The real problem set, or while ``source`` is ``generated`` and no path is named, generated problems.

    ``name`` is that of the chosen one: ``gsm8k``, or that of the generated task.
    """

    source: str
    """``hub``: the real set by its name on the hub; ``generated``: its stand-in."""
    path: str | None
    """A local file or folder with the real set; where one is named it is read whatever ``source`` is."""
    real: Task
    generated: Task
    train_problems: int | None
    """How many are trained on; None, here and below: the chosen set's own number."""
    validation_problems: int | None
    test_problems: int | None

    def __post_init__(self) -> None:
        if self.source not in get_args(Source):
            raise ValueError(f"task.source must be one of {', '.join(get_args(Source))}, got {self.source!r}")

    @property
    def chosen(self) -> Task:
        task: Any = self.generated if self.source == "generated" and self.path is None else self.real
        sizes = {name: size for name in SIZES if (size := getattr(self, name)) is not None}
        return replace(task, **sizes) if sizes else task

    @property
    def name(self) -> str:
        return self.chosen.name

    def problems(self, split: Split) -> Sequence[Problem]:
        return self.chosen.problems(split)

    def left_out(self, split: Split) -> Sequence[str]:
        """The rows of the real set that are no problem; generated problems leave none out."""
        return getattr(self.chosen, "left_out", lambda _: ())(split)

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return self.chosen.verify(problem, completion)

    def verify_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        chosen = self.chosen
        if isinstance(chosen, VerifiesTogether):
            return chosen.verify_all(problems, completions)
        return [chosen.verify(problem, text) for problem, text in zip(problems, completions, strict=True)]

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        return self.chosen.parse_steps(problem, completion)

    def scores(self, problem: Problem, completion: str) -> Mapping[str, float]:
        return self.chosen.scores(problem, completion)
