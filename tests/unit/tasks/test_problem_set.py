"""Rows and their splits, and tasks that a function judges: files of every kind, one sentence for each mistake."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from contrastive_reasoning.tasks.base import Problem, Split, Task, Verdict, VerifiesTogether
from contrastive_reasoning.tasks.examples import same_text
from contrastive_reasoning.tasks.formats import RowTemplate
from contrastive_reasoning.tasks.problem_set import FunctionTask, ProblemSet, question_key
from datamodules.problem_rows import ProblemRows


def word_rows(path: Path, words: list[str]) -> ProblemRows:
    path.write_text("\n".join(json.dumps({"word": word}) for word in words), encoding="utf-8")
    return ProblemRows(path=str(path), subset=None, revision=None, split="train", file=None)


@pytest.fixture
def words(tmp_path: Path) -> ProblemSet:
    """30 words in one file, every third of them twice."""
    listed = [f"w{number}" for number in range(30)] + [f" W{number} " for number in range(0, 30, 3)]
    return ProblemSet(
        name="words",
        train=word_rows(tmp_path / "words.jsonl", listed),
        validation=None,
        test=None,
        path=None,
        format=RowTemplate(prompt="Spell {word}.", answer=None, id=None),
        on_bad="refuse",
        train_problems=None,
        validation_problems=7,
        test_problems=5,
    )


def keys(words: ProblemSet) -> dict[Split, set[str]]:
    return {split: {question_key(problem) for problem in words.problems(split)} for split in get_args(Split)}


def test_a_question_is_in_one_split_though_it_stands_in_two_rows(words: ProblemSet) -> None:
    found = keys(words)
    assert {split: len(found[split]) for split in found} == {"train": 18, "validation": 7, "test": 5}
    assert len(set.union(*found.values())) == 30
    assert sum(len(words.problems(split)) for split in get_args(Split)) == 40, "no row is lost"


def test_fewer_training_problems_leave_the_other_splits_as_they_are(words: ProblemSet) -> None:
    fewer = replace(words, train_problems=4)
    assert fewer.problems("train") == words.problems("train")[:4]
    assert all(fewer.problems(split) == words.problems(split) for split in ("validation", "test"))


def test_rows_are_read_once_for_all_splits(words: ProblemSet, tmp_path: Path) -> None:
    first = words.problems("train")
    (tmp_path / "words.jsonl").unlink()
    assert replace(words).problems("train") is first
    assert words.left_out("test") == ()


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"on_bad": "ignore"}, "on_bad must be one of refuse, leave_out, got 'ignore'"),
        ({"train_problems": 0}, r"train_problems must be at least 1 \(or null: all\), got 0"),
        ({"test_problems": -1}, "test_problems must be ≥ 0, got -1"),
        ({"train": None}, "train and test are both null: a task needs rows"),
    ],
)
def test_what_is_refused_before_anything_is_read(words: ProblemSet, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=f"^{sentence}$"):
        replace(words, **change)


WORDS = [{"key": f"k{number}", "word": f"w{number}", "length": number} for number in range(20)]
FORMAT = RowTemplate(prompt="How long is {word}?", answer="length", id="key")


def all_wrong(problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
    return [Verdict(status="wrong", reason=f"{one.id} {text}") for one, text in zip(problems, completions, strict=True)]


@pytest.fixture
def task(tmp_path: Path) -> FunctionTask:
    of_split = {"path": None, "subset": None, "revision": None, "file": None}
    return FunctionTask(
        name="words",
        path=written(tmp_path / "words.jsonl", WORDS),
        train=ProblemRows(split="train", **of_split),
        validation=None,
        test=ProblemRows(split="test", **of_split),
        format=FORMAT,
        on_bad="refuse",
        train_problems=None,
        validation_problems=3,
        test_problems=4,
        verifier=all_wrong,
    )


def written(path: Path, rows: Sequence[dict[str, Any]]) -> str:
    """A file of the kind that its name says."""
    path.parent.mkdir(exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(rows)), path)
    elif path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows))
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def ids(task: FunctionTask) -> dict[Split, set[str]]:
    return {split: {problem.id.rpartition("/")[2] for problem in task.problems(split)} for split in get_args(Split)}


def test_it_is_a_task_that_judges_many_at_once(task: FunctionTask) -> None:
    assert isinstance(task, Task)
    assert isinstance(task, VerifiesTogether)
    problems = task.problems("test")[:2]
    assert [verdict.reason for verdict in task.verify_all(problems, ["a", "b"])] == [
        f"{problems[0].id} a",
        f"{problems[1].id} b",
    ]
    assert task.verify(problems[0], "a") == task.verify_all(problems, ["a", "b"])[0]
    assert task.scores(problems[0], "a") == {}
    assert [step.state for step in task.parse_steps(problems[0], "One. Two.")] == [1, 2]


@pytest.mark.parametrize("kind", ["jsonl", "json", "csv", "parquet"])
def test_one_file_of_any_kind_is_split_alike_and_no_problem_is_in_two_splits(
    task: FunctionTask, tmp_path: Path, kind: str
) -> None:
    found = ids(replace(task, path=written(tmp_path / f"other.{kind}", WORDS)))
    assert {split: len(found[split]) for split in found} == {"train": 13, "validation": 3, "test": 4}
    assert set.union(*found.values()) == {row["key"] for row in WORDS}
    assert found == ids(task)


def test_a_folder_has_a_file_for_each_split(task: FunctionTask, tmp_path: Path) -> None:
    written(tmp_path / "folder" / "train.jsonl", WORDS[:15])
    written(tmp_path / "folder" / "test.jsonl", WORDS[12:])
    found = ids(replace(task, path=str(tmp_path / "folder")))
    assert found["test"] == {row["key"] for row in WORDS[12:]}
    assert found["train"] | found["validation"] == {row["key"] for row in WORDS[:12]}, "the test set's are left out"
    assert not found["train"] & found["validation"]


def test_the_row_is_what_the_function_may_look_at(task: FunctionTask) -> None:
    (problem,) = [one for split in get_args(Split) for one in task.problems(split) if one.id.endswith("/k7")]
    assert (problem.prompt, problem.answer, dict(problem.fields)) == ("How long is w7?", "7", WORDS[7])


def refused(task: FunctionTask, **changes: Any) -> str:
    with pytest.raises((ValueError, OSError)) as error:
        replace(task, **changes).problems("train")
    return str(error.value)


def test_a_missing_file_is_named(task: FunctionTask) -> None:
    assert refused(task, path="data/none.jsonl") == "no file or folder 'data/none.jsonl' to read problems from"
    assert refused(task, path=None) == ("no path was named to read problems from: name a local file or folder as path")


def test_a_missing_field_is_named_with_its_line(task: FunctionTask, tmp_path: Path) -> None:
    path = written(tmp_path / "gap.jsonl", [*WORDS[:4], {"key": "x", "length": 1}, *WORDS[5:]])
    sentence = f"{path}: 1 of 20 rows cannot be used (on_bad=leave_out skips them): line 5: no column word; "
    assert refused(task, path=path) == sentence + "there are key, length"
    lenient = replace(task, path=path, on_bad="leave_out")
    assert len(set.union(*ids(lenient).values())) == 19
    assert lenient.left_out("train") == ("line 5: no column word; there are key, length",)


def test_a_field_that_no_row_has_is_the_formats_mistake(task: FunctionTask) -> None:
    other = RowTemplate(prompt="{wrd}", answer=None, id=None)
    assert refused(task, format=other) == f"{task.path}: no column wrd; there are key, word, length"


def test_two_rows_with_the_same_id_are_named_with_their_lines(task: FunctionTask, tmp_path: Path) -> None:
    path = written(tmp_path / "twice.jsonl", [*WORDS, {**WORDS[0], "key": "k3"}])
    assert refused(task, path=path).endswith("line 21: its id 'k3' is already that of line 4")


def test_too_few_rows_are_refused_with_the_numbers(task: FunctionTask, tmp_path: Path) -> None:
    path = written(tmp_path / "few.jsonl", WORDS[:7])
    sentence = "words: 3 validation and 4 test problems cannot be split off 7 different problems"
    assert refused(task, path=path) == sentence


def test_the_verifier_is_no_part_of_what_was_read(task: FunctionTask) -> None:
    other = replace(task, verifier=lambda problems, completions: [])
    assert other == task
    assert other.problems("train") is task.problems("train")


def test_a_number_out_of_range_is_refused_at_once(task: FunctionTask) -> None:
    with pytest.raises(ValueError, match=re.escape("train_problems must be at least 1 (or null: all), got 0")):
        replace(task, train_problems=0)


def test_the_example() -> None:
    problem = Problem(id="0", prompt="", answer="pmal")
    said = [same_text(problem, text) for text in (" pmal\n", "lamp", " \n")]
    assert said == [True, "another text than the answer", "nothing is written"]


def sharing(task: FunctionTask, folder: Path, *, train: int, test: slice) -> FunctionTask:
    written(folder / "train.jsonl", WORDS[:train])
    written(folder / "test.jsonl", WORDS[test])
    return replace(task, path=str(folder), validation_problems=2)


def test_a_training_set_that_is_the_test_set_is_named(task: FunctionTask, tmp_path: Path) -> None:
    same = sharing(task, tmp_path / "same", train=8, test=slice(8))
    for split in ("train", "validation"):
        with pytest.raises(ValueError, match=r"^words: all 8 training rows stand in the test set, too: no problem is "):
            same.problems(split)
    assert len(same.problems("test")) == 8
    nearly = sharing(task, tmp_path / "nearly", train=9, test=slice(8))
    assert refused(nearly) == (
        "words: 2 validation and 0 test problems cannot be split off 1 different problems "
        "(8 more stand in the rows of another split, too)"
    )


def test_training_rows_that_stand_in_the_test_set_are_counted(
    task: FunctionTask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    found = ids(sharing(task, tmp_path / "some", train=10, test=slice(7, 12)))
    assert len(found["train"] | found["validation"]) == 7
    assert caplog.messages == ["words: 3 of 10 training rows stand in the test set, too, and are left out"]
