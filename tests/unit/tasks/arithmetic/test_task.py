"""The arithmetic task: its problems, disjoint splits, and identical draws in every process."""

from __future__ import annotations

import pickle
import subprocess
import sys
from itertools import combinations

import pytest

from contrastive_reasoning.tasks import base
from contrastive_reasoning.tasks.arithmetic import split_of
from contrastive_reasoning.tasks.base import Split, Task
from tests.unit.tasks.arithmetic.kit import arithmetic

SPLITS: tuple[Split, ...] = ("train", "validation", "test")
TESTS = ("in_distribution", "perturb_simple", "perturb_hard")


TASK = arithmetic()


@pytest.mark.parametrize("test", TESTS)
def test_gold_solutions_are_correct_and_legal(test: str) -> None:
    made = arithmetic(test=test)
    for split in SPLITS:
        for problem in made.problems(split):
            verdict = made.verify(problem, problem.solution)
            assert verdict.correct, problem
            assert verdict.fields["right_plan"]
            assert made.scores(problem, problem.solution)["arithmetic/legal_steps"] == 1.0
            steps = made.parse_steps(problem, problem.solution)
            assert all(step.legal for step in steps)
            assert steps[-1].state[-1] == int(problem.answer)


def test_no_situation_is_in_two_splits() -> None:
    """Names, thing and question do not matter. The perturbed test sets are included."""
    sets = {(split, "in_distribution"): arithmetic().problems(split) for split in SPLITS}
    sets |= {("test", test): arithmetic(test=test).problems("test") for test in TESTS[1:]}
    sets |= {("train", "another seed"): arithmetic(seed=1).problems("train")}
    situations = {name: {problem.story.situation for problem in problems} for name, problems in sets.items()}
    for (one, first), (other, second) in combinations(situations.items(), 2):
        if one[0] != other[0]:
            assert not first & second, (one, other)
    for (split, _), problems in sets.items():
        assert all(split_of(problem.story) == split for problem in problems)
        assert len({problem.key for problem in problems}) == len(problems)


def test_problems_are_identical_in_every_process() -> None:
    script = (
        "import sys, pickle; task = pickle.load(sys.stdin.buffer); "
        "print(*[p.id for s in ('train', 'validation', 'test') for p in task.problems(s)], sep='\\n')"
    )
    done = subprocess.run([sys.executable, "-c", script], input=pickle.dumps(TASK), capture_output=True, check=True)
    assert done.stdout.decode().split("\n")[:-1] == [p.id for split in SPLITS for p in TASK.problems(split)]


def test_problems_follow_the_settings() -> None:
    assert isinstance(TASK, Task)
    assert pickle.loads(pickle.dumps(TASK)) == TASK
    problems = TASK.problems("train")
    assert len(problems) == 150
    fewer = arithmetic(train_problems=10, instructed=True).problems("train")
    assert [problem.id for problem in fewer] == [problem.id for problem in problems[:10]]
    assert fewer[0].prompt.startswith(problems[0].prompt)
    assert ("boxed" in fewer[0].prompt, "boxed" in problems[0].prompt) == (True, False)
    assert {len(problem.fields["plan"]) for problem in problems} == {2, 3, 4}
    assert {number for problem in problems for number in problem.story.numbers} == {2, 3, 5, 6, 8, 9}
    assert all(0 <= equation.result <= 99 for problem in problems for equation in problem.fields["plan"])
    assert 16 <= sum(len(problem.prompt.split()) for problem in problems) / 150 <= 28


@pytest.mark.parametrize(
    "setting",
    [
        {"test": "hard"},
        {"steps": [3, 2]},
        {"clauses": [0, 2]},
        {"number_range": [1, 9]},
        {"new_numbers": [40]},
        {"limit": 5},
        {"taught_share": 1.2},
        {"train_problems": -1},
    ],
)
def test_invalid_settings_are_rejected(setting: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=f"{next(iter(setting))} must"):
        arithmetic(**setting)


def test_exhausted_story_space_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base, "REPEATS", 5)
    few = {"clauses": [1, 1], "number_range": [2, 3], "new_numbers": [], "taught_share": 1.0, "both_share": 0.0}
    with pytest.raises(ValueError, match="distinct train"):
        arithmetic(**few, train_problems=100_000).problems("train")
