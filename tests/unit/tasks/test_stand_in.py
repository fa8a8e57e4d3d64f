from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pytest

from contrastive_reasoning.tasks.base import Problem, Split, Step, Verdict
from contrastive_reasoning.tasks.stand_in import StandInTask


@dataclass(frozen=True)
class Named:
    """A task that says its name in everything it does."""

    name: str
    train_problems: int | None = 1
    validation_problems: int = 1
    test_problems: int = 1

    def problems(self, split: Split) -> Sequence[Problem]:
        size = getattr(self, f"{split}_problems")
        return [Problem(id=f"{self.name}/{split}", prompt="", answer=self.name)] * size

    def verify(self, problem: Problem, completion: str) -> Verdict:
        return Verdict(status="ok" if completion == self.name else "wrong", reason=self.name)

    def parse_steps(self, problem: Problem, completion: str) -> list[Step]:
        return [Step(start=0, end=1, state=self.name, legal=True)]

    def scores(self, problem: Problem, completion: str) -> Mapping[str, float]:
        return {f"{self.name}/score": 1.0}


class Together(Named):
    def verify_all(self, problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        return [Verdict(status="ok", reason="together") for _ in completions]


def task(source: str, path: str | None, train_problems: int | None = None) -> StandInTask:
    return StandInTask(
        source=source,
        path=path,
        real=Together("real"),
        generated=Named("generated"),
        train_problems=train_problems,
        validation_problems=None,
        test_problems=None,
    )


@pytest.mark.parametrize(
    ("source", "path", "name"),
    [("hub", None, "real"), ("generated", None, "generated"), ("generated", "/data", "real"), ("hub", "/data", "real")],
)
def test_generated_problems_stand_in_while_no_path_is_named(source: str, path: str | None, name: str) -> None:
    chosen = task(source, path)
    (problem,) = chosen.problems("train")
    assert chosen.name == name
    assert problem.id == f"{name}/train"
    assert chosen.verify(problem, name).correct
    assert chosen.parse_steps(problem, "x")[0].state == name
    assert chosen.scores(problem, "x") == {f"{name}/score": 1.0}
    assert not chosen.left_out("train")


@pytest.mark.parametrize("source", ["hub", "generated"])
def test_sizes_are_those_of_the_chosen_set_unless_they_are_said(source: str) -> None:
    assert [len(task(source, None).problems(split)) for split in ("train", "validation")] == [1, 1]
    assert [len(task(source, None, train_problems=3).problems(split)) for split in ("train", "validation")] == [3, 1]


def test_a_batch_is_judged_as_the_chosen_task_likes_it() -> None:
    problems = task("hub", None).problems("test") * 2
    assert [v.reason for v in task("hub", None).verify_all(problems, ["", ""])] == ["together"] * 2
    assert [v.reason for v in task("generated", None).verify_all(problems, ["", ""])] == ["generated"] * 2


def test_an_unknown_source_is_named() -> None:
    with pytest.raises(ValueError, match=r"task\.source must be one of hub, generated, got 'web'"):
        task("web", None)
