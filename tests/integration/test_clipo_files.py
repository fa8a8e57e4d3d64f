"""The CLIPO paper's own files: every row is a problem with the instruction once and a valid gold answer."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from hydra import compose

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.problem_set import AnswerTask
from experiments.assemble import build
from experiments.schema import composing

ROOT = Path(__file__).resolve().parents[2]
CONF, FILES = ROOT / "conf", ROOT.parent / "shared" / "data" / "clipo"
TRACKS = {
    "track1": {
        "gsm8k": 1319,
        "gsm_symbolic": 5000,
        "gsm_p1": 5000,
        "gsm_p2": 2500,
        "theoremqa": 1494,
        "commonsense_qa": 1221,
        "truthfulqa": 1634,
        "mmlu": 2000,
    },
    "track2": {
        "math500": 500,
        "math_perturb_simple": 279,
        "math_perturb_hard": 279,
        "amc23": 83,
        "aime24": 30,
        "aime25": 30,
    },
}
DIFFERENT = {"theoremqa": 747, "truthfulqa": 817, "gsm_symbolic": 4999, "mmlu": 1999}
"""Number of distinct questions of the sets that repeat questions."""
INSTRUCTION = re.compile(
    r"Let's think step by step and output the final answer (\(eg, [A-Z., ]+\) )?within \\boxed\{\}"
)

pytestmark = pytest.mark.skipif(not FILES.is_dir(), reason="the CLIPO files are not in ../shared/data/clipo")


def sets_of(track: str) -> Mapping[str, AnswerTask]:
    with composing():
        config = compose("config", ["experiment=llama_baseline", f"suite={track}", f"suite.sets.path={FILES / 'test'}"])
    return build(config, "suite").sets


def task_of(name: str, path: Path) -> AnswerTask:
    with composing():
        config = compose("config", ["experiment=grpo_gsm8k", f"task={name}", "scale=paper", f"task.path='{path}'"])
    task = build(config, "task")
    return getattr(task, "chosen", task)


def check(problems: list[Problem]) -> None:
    assert len({problem.id for problem in problems}) == len(problems)
    for problem in problems:
        assert len(INSTRUCTION.findall(problem.prompt)) == 1, problem.id
        assert problem.prompt.rstrip().endswith(r"\boxed{}."), problem.id
        assert problem.answer.strip(), problem.id
        assert r"\boxed" not in problem.answer, problem.id


@pytest.mark.parametrize("track", TRACKS)
def test_every_row_of_evaluation_files_is_a_valid_problem(track: str) -> None:
    sets = sets_of(track)
    assert set(sets) == set(TRACKS[track])
    for name, task in sets.items():
        problems = list(task.problems("test"))
        check(problems)
        assert (len(problems), task.left_out("test")) == (TRACKS[track][name], ()), name
        assert len({problem.prompt for problem in problems}) == DIFFERENT.get(name, len(problems)), name
        if task.judge == "choice":
            assert all(re.fullmatch("[A-Z]", problem.answer) for problem in problems)
            assert all(f"\n{problem.answer}. " in problem.prompt for problem in problems)


TRAINING = {"gsm8k": ("gsm8k", 7473, 1319), "math": ("math75", 7498, 500)}
"""Task → its file, number of rows that can be scored, number of test problems."""


@pytest.mark.parametrize("task", TRAINING)
def test_every_scorable_row_of_training_files_is_in_one_split(task: str) -> None:
    """Two of MATH's solutions end in an empty box. All other rows can be scored, and no question is in two splits."""
    file, rows, tests = TRAINING[task]
    one = task_of(task, FILES)
    assert one.own_rows("train") is not None
    splits = {split: list(one.problems(split)) for split in ("train", "validation", "test")}
    check([problem for problems in splits.values() for problem in problems])
    assert {split: len(problems) for split, problems in splits.items()} == {
        "train": rows - 200,
        "validation": 200,
        "test": tests,
    }
    assert len(one.left_out("train")) == (2 if file == "math75" else 0)
    prompts = [{problem.prompt for problem in problems} for problems in splits.values()]
    assert sum(map(len, prompts)) == len(set.union(*prompts))


def test_single_training_file_is_split() -> None:
    one = task_of("gsm8k", FILES / "train" / "gsm8k.parquet")
    sizes = {split: len(one.problems(split)) for split in ("train", "validation", "test")}
    assert sizes == {"train": 6773, "validation": 200, "test": 500}
