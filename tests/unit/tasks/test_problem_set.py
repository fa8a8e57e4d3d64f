"""How rows are shared out; what AnswerTask adds to it has tests of its own."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from contrastive_reasoning.tasks.base import Split
from contrastive_reasoning.tasks.formats import RowTemplate
from contrastive_reasoning.tasks.problem_set import ProblemSet, question_key
from datamodules.problem_rows import ProblemRows


def rows(path: Path, words: list[str]) -> ProblemRows:
    path.write_text("\n".join(json.dumps({"word": word}) for word in words), encoding="utf-8")
    return ProblemRows(path=str(path), subset=None, revision=None, split="train", file=None)


@pytest.fixture
def words(tmp_path: Path) -> ProblemSet:
    """30 words in one file, every third of them twice."""
    listed = [f"w{number}" for number in range(30)] + [f" W{number} " for number in range(0, 30, 3)]
    return ProblemSet(
        name="words",
        train=rows(tmp_path / "words.jsonl", listed),
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
