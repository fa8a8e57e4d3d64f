"""A problem set as a task: its splits, what is left out of them, how its completions are judged."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from contrastive_reasoning.tasks.answer import verify_answer
from contrastive_reasoning.tasks.base import Problem, Split, Task, Verdict, VerifiesTogether
from contrastive_reasoning.tasks.formats import PlainAnswer
from contrastive_reasoning.tasks.problem_set import AnswerTask, question_key
from datamodules.problem_rows import ProblemRows

INSTRUCTION = r"Let's think step by step and output the final answer within \boxed{}."
FORMAT = PlainAnswer(question="question", answer="answer", instruction=INSTRUCTION)


def sums(numbers: Sequence[int], extra: str = "") -> list[dict[str, Any]]:
    return [{"question": f"What is {n} + 1?{extra}", "answer": n + 1} for n in numbers]


def write(path: Path, rows: list[dict[str, Any]]) -> ProblemRows:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return ProblemRows(path=str(path), subset=None, revision=None, split="train", file=None)


@pytest.fixture
def task(tmp_path: Path) -> AnswerTask:
    """40 training problems, 5 of which are also test problems; 10 test problems."""
    return AnswerTask(
        name="sums",
        train=write(tmp_path / "train.jsonl", sums(range(40))),
        validation=None,
        test=write(tmp_path / "test.jsonl", sums(range(35, 45), extra=f"\n{INSTRUCTION}")),
        path=None,
        format=FORMAT,
        judge="answer",
        on_bad="refuse",
        train_problems=None,
        validation_problems=6,
        test_problems=4,
        verifier=None,
    )


def keys(task: AnswerTask) -> dict[str, set[str]]:
    return {split: set(map(question_key, task.problems(split))) for split in get_args(Split)}


@pytest.mark.parametrize("pooled", [False, True])
def test_where_a_percentage_is_asked_for_its_sign_is_no_mistake(task: AnswerTask, pooled: bool) -> None:
    asked: list[str] = []

    def verifier(pairs: Sequence[tuple[str, str]], judge: str) -> list[Verdict]:
        asked.extend(text for _, text in pairs)
        return [verify_answer(gold, text) for gold, text in pairs]

    judging = replace(task, verifier=verifier if pooled else None)
    posed = [
        Problem(id=str(place), prompt=question, answer="20")
        for place, question in enumerate(["What percent is left?", "What is left?", "What percentage is left?"])
    ]
    found = judging.verify_all(posed, [r"\boxed{20\%}", r"\boxed{20\%}", r"\boxed{30\%}"])
    assert [verdict.status for verdict in found] == ["ok", "wrong", "wrong"]
    assert found[2].reason == "another number"
    assert len(asked) == (3 + 2 if pooled else 0), "only what may be right otherwise is judged again"


def test_it_is_a_task(task: AnswerTask) -> None:
    assert isinstance(task, Task)
    assert isinstance(task, VerifiesTogether)
    assert {split: len(task.problems(split)) for split in get_args(Split)} == {"train": 29, "validation": 6, "test": 10}


def test_no_question_is_in_two_splits(task: AnswerTask) -> None:
    found = keys(task)
    assert not found["train"] & found["validation"]
    assert not (found["train"] | found["validation"]) & found["test"]
    assert len(set.union(*found.values())) == 45


def test_a_question_of_the_test_set_is_left_out_in_any_spelling(task: AnswerTask, tmp_path: Path) -> None:
    rows = [{"question": f"what is  {n} +\n1? {INSTRUCTION}", "answer": n + 1} for n in range(35, 45)]
    respelt = replace(task, train=write(tmp_path / "respelt.jsonl", sums(range(20)) + rows))
    assert len(respelt.problems("train")) + len(respelt.problems("validation")) == 20


def test_a_validation_set_of_its_own_is_left_out_of_training_and_gives_way_to_the_test(
    task: AnswerTask, tmp_path: Path
) -> None:
    own = replace(task, validation=write(tmp_path / "validation.jsonl", sums(range(30, 40))))
    found = keys(own)
    assert {split: len(found[split]) for split in found} == {"train": 30, "validation": 5, "test": 10}
    assert not found["train"] & found["validation"]


def test_every_row_is_a_problem_with_its_own_id_and_the_instruction_once(task: AnswerTask, tmp_path: Path) -> None:
    twice = replace(task, test=write(tmp_path / "twice.jsonl", sums(range(40, 45)) * 2))
    problems = twice.problems("test")
    assert [problem.id for problem in problems] == [f"sums/test/{row}" for row in range(10)]
    assert problems[0].prompt == problems[5].prompt
    ids = [problem.id for split in get_args(Split) for problem in twice.problems(split)]
    assert len(set(ids)) == len(ids)
    assert all(problem.prompt.count(INSTRUCTION) == 1 for problem in task.problems("test"))


def test_the_split_is_the_same_in_every_process_and_when_rows_move(task: AnswerTask, tmp_path: Path) -> None:
    moved = replace(task, train=write(tmp_path / "moved.jsonl", sums(range(39, -1, -1))))
    assert keys(moved) == keys(task)
    code = "import sys; from tests_task import task; print(*sorted(p.prompt for p in task.problems('validation')))"
    (tmp_path / "tests_task.py").write_text(
        "from contrastive_reasoning.tasks.problem_set import AnswerTask\n"
        "from contrastive_reasoning.tasks.formats import PlainAnswer\n"
        "from datamodules.problem_rows import ProblemRows\n"
        f"task = {task!r}\n"
    )
    path = [str(tmp_path), str(Path(__file__).resolve().parents[3])]
    result = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path[:0] = {path!r}; {code}"],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONHASHSEED": "7"},
    )
    assert result.stdout.strip() == " ".join(sorted(problem.prompt for problem in task.problems("validation")))


def test_more_rows_move_no_problem_from_one_split_to_another_by_their_place(task: AnswerTask) -> None:
    larger = replace(task, validation_problems=12)
    assert keys(task)["validation"] < keys(larger)["validation"]


def test_one_local_file_is_everything_there_is(task: AnswerTask, tmp_path: Path) -> None:
    assert task.train is not None
    one = replace(task, path=str(tmp_path / "train.jsonl"))
    found = keys(one)
    assert {split: len(found[split]) for split in found} == {"train": 30, "validation": 6, "test": 4}
    assert len(set.union(*found.values())) == 40
    assert one.problems("train")[0].id.startswith("sums/train/")


def test_a_local_folder_holds_both(task: AnswerTask, tmp_path: Path) -> None:
    folder = replace(
        task,
        train=ProblemRows(path="someone/sums", subset=None, revision=None, split="train", file=None),
        test=ProblemRows(path="someone/sums", subset=None, revision=None, split="test", file=None),
        path=str(tmp_path),
    )
    assert keys(folder) == keys(task)


def test_a_set_that_is_only_evaluated(task: AnswerTask, tmp_path: Path) -> None:
    only = replace(task, train=None, path=str(tmp_path / "test.jsonl"))
    assert {split: len(only.problems(split)) for split in get_args(Split)} == {"train": 0, "validation": 0, "test": 10}


def test_bad_rows_are_refused_by_number_or_left_out_and_listed(
    task: AnswerTask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = sums(range(20))
    rows[3]["answer"], rows[7]["question"] = None, " "
    bad = write(tmp_path / "bad.jsonl", rows)
    listed = "line 4: answer is empty; line 8: question is empty"
    with pytest.raises(ValueError, match=rf"bad.jsonl: 2 of 20 rows .* {listed}$"):
        replace(task, train=bad).problems("train")
    lenient = replace(task, train=bad, on_bad="leave_out")
    with caplog.at_level(logging.WARNING):
        assert len(lenient.problems("train")) + len(lenient.problems("validation")) == 18
    assert "2 rows left out, the first line 4" in caplog.text
    assert lenient.left_out("train") == ("line 4: answer is empty", "line 8: question is empty")
    assert lenient.left_out("validation") == lenient.left_out("train")
    assert lenient.left_out("test") == ()


def test_a_gold_that_does_not_verify_itself_is_a_bad_row(task: AnswerTask, tmp_path: Path) -> None:
    rows = [*sums(range(20)), {"question": "What is the answer?", "answer": "very long " * 99}]
    bad = write(tmp_path / "gold.jsonl", rows)
    with pytest.raises(ValueError, match=r"1 of 21 rows cannot be used .* line 21: no gold answer"):
        replace(task, train=bad).problems("train")
    choice = replace(task, train=None, test=write(tmp_path / "letters.jsonl", rows[:1]), judge="choice")
    with pytest.raises(ValueError, match=r"no problem in its 1 rows \(line 1: no gold letter\)"):
        choice.problems("test")


def test_a_missing_column_is_named_with_its_file(task: AnswerTask, tmp_path: Path) -> None:
    other = write(tmp_path / "other.jsonl", [{"problem": "What?", "solution": "4"}])
    with pytest.raises(ValueError, match=r"other.jsonl: no column question; there are problem, solution"):
        replace(task, test=other).problems("test")


def test_judging_one_is_judging_many(task: AnswerTask) -> None:
    problems = task.problems("test")[:3]
    texts = [rf"\boxed{{{problems[0].answer}}}", r"so \boxed{-1}", "no idea"]
    together = task.verify_all(problems, texts)
    assert [verdict.status for verdict in together] == ["ok", "wrong", "unparsed"]
    assert together == [task.verify(problem, text) for problem, text in zip(problems, texts, strict=True)]


def test_choices_are_judged_by_their_letter(task: AnswerTask, tmp_path: Path) -> None:
    letters = write(tmp_path / "letters.jsonl", [{"question": "Which?", "answer": letter} for letter in "ABE"])
    choice = replace(task, train=None, test=letters, judge="choice")
    problem = choice.problems("test")[1]
    assert choice.verify(problem, r"It is \boxed{B}.").correct
    assert not choice.verify(problem, r"It is \boxed{A}.").correct


def test_a_verifier_is_given_all_pairs_at_once_and_changes_no_problem(task: AnswerTask) -> None:
    asked: list[object] = []

    def verifier(pairs: Sequence[tuple[str, str]], kind: str) -> list[Verdict]:
        asked.append((list(pairs), kind))
        return [Verdict(status="timeout", reason="5 s")] * len(pairs)

    pooled = replace(task, verifier=verifier)
    assert pooled == task
    problem = pooled.problems("test")[0]
    assert [verdict.status for verdict in pooled.verify_all([problem, problem], ["a", "b"])] == ["timeout", "timeout"]
    assert asked == [([(problem.answer, "a"), (problem.answer, "b")], "answer")]


def test_steps_are_sentences_and_there_are_no_other_scores(task: AnswerTask) -> None:
    problem = Problem(id="0", prompt="", answer="1")
    assert [step.state for step in task.parse_steps(problem, "One. Two.")] == [1, 2]
    assert task.scores(problem, "One.") == {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"judge": "guess"}, "judge must be one of answer, choice, got 'guess'"),
        ({"on_bad": "ignore"}, "on_bad must be one of refuse, leave_out, got 'ignore'"),
        ({"validation_problems": -1}, "validation_problems must be ≥ 0, got -1"),
        ({"train": None, "test": None}, "train and test are both null"),
    ],
)
def test_what_is_refused_before_anything_is_read(task: AnswerTask, change: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        replace(task, **change)


def test_what_is_refused_when_read(task: AnswerTask) -> None:
    with pytest.raises(ValueError, match="35 validation and 0 test problems cannot be split off 35 different problems"):
        replace(task, validation_problems=35).problems("train")
