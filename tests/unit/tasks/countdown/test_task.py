"""The Countdown task: sources of problems, disjoint splits, and construction that loads nothing."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.tasks.base import Task
from contrastive_reasoning.tasks.countdown.problem import EXAMPLES, CountdownProblem, problem_key
from contrastive_reasoning.tasks.countdown.task import CountdownTask
from contrastive_reasoning.tasks.countdown.trace import search_trace
from tests.tiny_tasks import countdown

SETTINGS: dict[str, Any] = {
    "longproc_files": ["countdown_x.json"],
    "train_file": None,
    "on_bad": "refuse",
    "counts": [3],
    "number_range": [1, 9],
    "target_range": [10, 30],
    "train_problems": 120,
    "validation_problems": 20,
    "test_problems": 20,
}


def task(**changes: object) -> CountdownTask:
    return countdown(**SETTINGS | changes)


def keys(problems: object) -> set[str]:
    return {problem.key for problem in problems}  # type: ignore[attr-defined]


@pytest.fixture
def benchmark(tmp_path: Path) -> Path:
    """A folder like LongProc's. Its problems would be generated for training, validation and test without it."""
    own = [problem for split in ("train", "validation", "test") for problem in task().problems(split)[:5]]
    rows = [{"nums": list(problem.numbers), "target": problem.target} for problem in own]
    (tmp_path / "countdown_x.json").write_text(json.dumps(rows))
    (tmp_path / "prompts.yaml").write_text("USER_PROMPT: |-\n  {demonstration}\n  {nums}\n  {target}")
    return tmp_path


def test_generated_splits_are_cached_and_do_not_overlap() -> None:
    made = task()
    assert isinstance(made, Task)
    assert pickle.loads(pickle.dumps(made)) == made
    train, validation, test = (made.problems(split) for split in ("train", "validation", "test"))
    assert (len(train), len(validation), len(test)) == (120, 20, 20)
    assert made.problems("train") is train
    assert len(keys(train) | keys(validation) | keys(test)) == 160
    assert all(made.split_of(problem) == "train" for problem in train)
    assert {problem_key(*example) for example in EXAMPLES} <= made.reserved_keys()
    for problem in test:
        moves = search_trace(problem.numbers, problem.target, style="direct").text
        assert made.verify(problem, moves).correct
        assert [step.legal for step in made.parse_steps(problem, moves)] == [True, True]


def test_generated_splits_exclude_longproc_problems(benchmark: Path) -> None:
    made, generated = task(longproc_dir=str(benchmark), test="longproc"), task(longproc_dir=str(benchmark))
    test = keys(made.problems("test"))
    assert len(test) == 15
    assert not (keys(made.problems("train")) | keys(made.problems("validation"))) & test
    assert all(made.split_of(problem) == "test" for problem in made.problems("test"))
    for split in ("train", "validation", "test"):
        assert not keys(generated.problems(split)) & test
    assert {generated.split_of(problem) for problem in made.problems("test")} == {None}
    on_it = task(longproc_dir=str(benchmark), train="longproc", test="longproc")
    assert keys(on_it.problems("train")) == test
    reported = [each.trains_on_evaluation_problems for each in (task(), made, generated, on_it)]
    assert reported == [False, False, False, True]
    with pytest.raises(FileNotFoundError, match=r"countdown_x\.json.*longproc_dir='/nowhere'"):
        task(longproc_dir="/nowhere", train="longproc").problems("train")


def test_generated_splits_exclude_training_problems_in_any_number_order(benchmark: Path) -> None:
    """The benchmark file lists numbers in another order than the generator draws them."""
    file = benchmark / "countdown_x.json"
    own = [{**row, "nums": row["nums"][::-1]} for row in json.loads(file.read_text())]
    file.write_text(json.dumps(own))
    made = task(longproc_dir=str(benchmark), train="longproc")
    train = made.problems("train")
    assert [list(problem.numbers) for problem in train] == [row["nums"] for row in own]
    assert {made.split_of(problem) for problem in train} == {"train"}
    assert not made.trains_on_evaluation_problems
    trained_on = {(tuple(sorted(problem.numbers)), problem.target) for problem in train}
    for split in ("validation", "test"):
        drawn = made.problems(split)
        assert not {(tuple(sorted(problem.numbers)), problem.target) for problem in drawn} & trained_on
        twin = task(longproc_dir=None).problems(split)
        assert {(tuple(sorted(problem.numbers)), problem.target) for problem in twin} & trained_on, "it would be drawn"


def test_only_listed_longproc_files_are_read_in_order(benchmark: Path) -> None:
    (benchmark / "countdown_y.json").write_text('[{"nums": [2, 3, 4], "target": 24}]')
    for files in (["countdown_y.json"], ["countdown_y.json", "countdown_x.json"]):
        problems = task(longproc_dir=str(benchmark), train="longproc", longproc_files=files).problems("train")
        assert problems[0].key == "2,3,4=24"
        assert [one.fields["source"] for one in problems] == ["countdown_y"] + ["countdown_x"] * 15 * (len(files) - 1)


def test_longproc_files_at_url_are_fetched_on_first_use(benchmark: Path) -> None:
    fetched: list[str] = []

    def fetch(address: str) -> Path:
        fetched.append(address)
        return benchmark / address.rpartition("/")[2]

    made = task(longproc_dir="https://example.org/data/", train="longproc", style="longproc", fetch=fetch)
    assert fetched == []
    assert keys(made.problems("train")) == keys(task(longproc_dir=str(benchmark), train="longproc").problems("train"))
    assert fetched[:2] == ["https://example.org/data/countdown_x.json", "https://example.org/data/prompts.yaml"]
    with pytest.raises(ValueError, match=r"https://example\.org/data"):
        task(longproc_dir="https://example.org/data", train="longproc").problems("train")


def test_training_file_problems_are_excluded_from_other_splits(tmp_path: Path) -> None:
    rows = [{"nums": list(problem.numbers), "target": problem.target} for problem in task().problems("test")[:5]]
    path = tmp_path / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    made = task(train="file", train_file=str(path))
    assert len(made.problems("train")) == 5
    assert {made.split_of(problem) for problem in made.problems("train")} == {"train"}
    assert not keys(made.problems("train")) & (keys(made.problems("test")) | keys(made.problems("validation")))


def test_longproc_problems_in_training_file_are_rejected_or_left_out(benchmark: Path) -> None:
    own = json.loads((benchmark / "countdown_x.json").read_text())
    path = benchmark / "mine.jsonl"
    path.write_text("\n".join(map(json.dumps, [*own[:2], {"nums": [2, 3, 4], "target": 24}])))
    with pytest.raises(ValueError, match=r"2 .*mine\.jsonl.*LongProc"):
        task(train="file", train_file=str(path), longproc_dir=str(benchmark)).problems("train")
    made = task(train="file", train_file=str(path), longproc_dir=str(benchmark), on_bad="leave_out")
    assert keys(made.problems("train")) == {"2,3,4=24"}


def test_prompt_depends_on_style_and_longproc_dir(benchmark: Path) -> None:
    assert task().problem((5, 6), 11).prompt == "5 6 = 11\n"
    ours = task(style="longproc").problem((5, 6), 11).prompt
    template = task(style="longproc", longproc_dir=str(benchmark)).problem((5, 6), 11).prompt
    assert ours == CountdownProblem((5, 6), 11).prompt
    assert template.startswith("# Example\nNumbers: [40, 19, 23, 7]")
    assert template.endswith("[5, 6]\n11")


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"style": "short"}, "'short'"),
        ({"train": "all"}, "'all'"),
        ({"test": "file"}, "'file'"),
        ({"on_bad": "skip"}, "'skip'"),
        ({"train": "longproc"}, "task.longproc_dir"),
        ({"test": "longproc"}, "longproc"),
        ({"longproc_files": []}, ""),
        ({"train": "file"}, "train_file"),
        ({"train_problems": -1}, "-1"),
        ({"counts": [9]}, ""),
    ],
)
def test_invalid_settings_are_rejected(setting: dict, named: str) -> None:
    (name,) = setting
    with pytest.raises(ValueError, match=f"{name}.*{named}"):
        task(**setting)


def test_direct_moves_get_longproc_accuracy() -> None:
    made = task()
    moves = ["21+16=37;37-17=20;26+20=46", "21+16=37;37-17=20;26+21=46", "21+16=37", "", "</Solution>;;"]
    scores = [made.scores(made.problem((21, 16, 17, 26), 46), each)["longproc/accuracy"] for each in moves]
    assert scores == [1.0, 0.0, 0.0, 0.0, 0.0]


@pytest.mark.parametrize("style", ["longproc", "annotated", "released", "direct"])
def test_prompt_file_replaces_prompt_of_any_style(style: str, benchmark: Path, tmp_path: Path) -> None:
    file = tmp_path / "prompt.txt"
    file.write_text("Make {target} of {nums}: \\boxed{{answer}}\n\n")
    problem = task(style=style, longproc_dir=str(benchmark), prompt_file=str(file)).problem((3, 4), 7)
    assert problem.prompt == "Make 7 of [3, 4]: \\boxed{{answer}}"
    assert problem.fields["style"] == style
