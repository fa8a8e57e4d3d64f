"""Problem sets as tasks: splits, rows that are left out, verification of completions, the generated stand-in."""

from __future__ import annotations

import csv
import json
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import pytest

from contrastive_reasoning.tasks.answer import verify_answer
from contrastive_reasoning.tasks.base import (
    CORRECT_IN,
    Problem,
    Split,
    Task,
    Verdict,
    VerifiesTogether,
    correct_in_forms,
)
from contrastive_reasoning.tasks.examples import same_text
from contrastive_reasoning.tasks.formats import PlainAnswer, RowTemplate
from contrastive_reasoning.tasks.problem_set import AnswerTask, FunctionTask, ProblemSet, question_key, stand_in_task
from datamodules.problem_rows import ProblemRows

INSTRUCTION = r"Let's think step by step and output the final answer within \boxed{}."
FORMAT = PlainAnswer(question="question", answer="answer", instruction=INSTRUCTION)
NO_SIZES: dict[str, Any] = {"train_problems": None, "validation_problems": None, "test_problems": None}


def sums(numbers: Sequence[int], extra: str = "") -> list[dict[str, Any]]:
    return [{"question": f"What is {n} + 1?{extra}", "answer": n + 1} for n in numbers]


def write(path: Path, rows: Sequence[dict[str, Any]]) -> ProblemRows:
    """Writes a table if the name ends with .csv, JSON lines otherwise."""
    with path.open("w", newline="", encoding="utf-8") as file:
        if path.suffix == ".csv":
            table = csv.DictWriter(file, rows[0])
            table.writeheader()
            table.writerows(rows)
        else:
            file.write("\n".join(map(json.dumps, rows)))
    return ProblemRows(path=str(path), subset=None, revision=None, split="train", file=None)


@pytest.fixture
def task(tmp_path: Path) -> AnswerTask:
    """40 training problems, 5 of which are also test problems, and 10 test problems."""
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


def keys(task: ProblemSet) -> dict[str, set[str]]:
    return {split: set(map(question_key, task.problems(split))) for split in get_args(Split)}


def sizes(task: ProblemSet) -> list[int]:
    return [len(task.problems(split)) for split in get_args(Split)]


def assert_refused(task: ProblemSet, named: str, **changes: Any) -> None:
    """Checks that reading the training split raises an error that names these parts."""
    with pytest.raises((ValueError, OSError), match=named):
        replace(task, **changes).problems("train")


def test_splits_share_no_question_in_any_spelling(task: AnswerTask, tmp_path: Path) -> None:
    assert sizes(task) == [29, 6, 10]
    assert len(set.union(*keys(task).values())) == 45
    rows = [{"question": f"what is  {n} +\n1? {INSTRUCTION}", "answer": n + 1} for n in range(35, 45)]
    respelt = replace(task, train=write(tmp_path / "respelt.jsonl", sums(range(20)) + rows))
    assert sizes(respelt) == [14, 6, 10]
    own = replace(task, validation=write(tmp_path / "validation.jsonl", sums(range(30, 40))))
    assert sizes(own) == [30, 5, 10], "validation is left out of training and gives way to the test"
    assert len(set.union(*keys(own).values())) == 45


def test_repeated_rows_of_a_question_stay_in_one_split(task: AnswerTask, tmp_path: Path) -> None:
    twice = sums(range(30)) + [{"question": f" What is {n} +  1? ", "answer": n + 1} for n in range(0, 30, 3)]
    one = replace(task, train=write(tmp_path / "twice.jsonl", twice), test=None)
    assert len(set.union(*keys(one).values())) == sum(map(len, keys(one).values())) == 30
    assert sum(sizes(one)) == 40, "no row is lost"
    fewer = replace(one, train_problems=4)
    assert fewer.problems("train") == one.problems("train")[:4]
    assert fewer.problems("test") == one.problems("test")
    ids = [problem.id for split in get_args(Split) for problem in one.problems(split)]
    assert len(set(ids)) == 40
    (tmp_path / "twice.jsonl").unlink()
    assert replace(one).problems("train") is one.problems("train"), "rows are read once"


def test_split_does_not_depend_on_process_or_row_order(task: AnswerTask, tmp_path: Path) -> None:
    moved = replace(task, train=write(tmp_path / "moved.jsonl", sums(range(39, -1, -1))))
    assert keys(moved) == keys(task)
    assert keys(task)["validation"] < keys(replace(task, validation_problems=12))["validation"]
    code = f"""import sys; sys.path.insert(0, {str(Path(__file__).resolve().parents[3])!r})
from contrastive_reasoning.tasks.problem_set import AnswerTask
from contrastive_reasoning.tasks.formats import PlainAnswer
from datamodules.problem_rows import ProblemRows
print(*sorted(p.prompt for p in {task!r}.problems('validation')))"""
    command = [sys.executable, "-c", code]
    result = subprocess.run(command, capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": "7"})
    assert result.stdout.strip() == " ".join(sorted(problem.prompt for problem in task.problems("validation")))


def test_path_may_be_a_folder_file_or_pattern(
    task: AnswerTask, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    named = {"path": "someone/sums", "subset": None, "revision": None, "file": None}
    train, test = ProblemRows(split="train", **named), ProblemRows(split="test", **named)
    assert keys(replace(task, train=train, test=test, path=str(tmp_path))) == keys(task)
    assert sizes(replace(task, train=None, path=str(tmp_path / "test.jsonl"))) == [0, 0, 10]
    write(tmp_path / "table.csv", sums(range(40)))
    one = replace(task, path=str(tmp_path / "table.csv"))
    assert sizes(one) == [30, 6, 4]
    assert len(set.union(*keys(one).values())) == 40
    assert one.problems("test")[0].id.startswith("sums/train/")
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("~/train.jsonl", str(tmp_path / "trai*.jsonl")):
        assert keys(replace(task, path=path)) == keys(one)


def test_bad_rows_are_listed_by_line(task: AnswerTask, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    rows = sums(range(20))
    rows[3]["answer"], rows[7]["question"], rows[9]["answer"] = None, " ", "very long " * 99
    bad = write(tmp_path / "bad.jsonl", rows)
    listed = ("line 4: answer is empty", "line 8: question is empty", "line 10: no gold answer")
    assert_refused(task, rf"{bad.source}: 3 of 20 .*on_bad=leave_out.*{'; '.join(listed)}$", train=bad)
    lenient = replace(task, train=bad, on_bad="leave_out")
    assert sum(sizes(lenient)) == 27
    assert re.search("3 rows .*line 4", caplog.text)
    assert lenient.left_out("train") == lenient.left_out("validation") == listed
    assert lenient.left_out("test") == ()


def test_training_rows_in_test_set_are_left_out_and_counted(
    task: AnswerTask, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert sizes(task)[0] == 29
    (message,) = caplog.messages
    assert re.search("sums: 5 of 40 training .* test", message)
    same = write(tmp_path / "same.jsonl", sums(range(35, 45)))
    assert_refused(task, "sums: all 10 training .* test", train=same)
    nearly = write(tmp_path / "nearly.jsonl", sums(range(34, 45)))
    assert_refused(task, "sums: 2 validation and 0 test .* 1 .*10 more", train=nearly, validation_problems=2)


def test_unreadable_rows_error_names_source_and_reason(task: AnswerTask, tmp_path: Path) -> None:
    assert_refused(task, "data/none.jsonl", path="data/none.jsonl")
    other = write(tmp_path / "other.jsonl", [{"problem": "What?", "solution": "4"}])
    assert_refused(task, f"{other.source}: .*question.*problem, solution", train=other)
    letters = write(tmp_path / "letters.jsonl", sums([7]))
    assert_refused(task, f"{letters.source}: .*line 1: no gold letter", train=letters, test=None, judge="choice")


@pytest.mark.parametrize(
    "change",
    [
        {"judge": "guess"},
        {"accept": "most"},
        {"on_bad": "ignore"},
        {"train_problems": 0},
        {"validation_problems": -1},
        {"train": None, "test": None},
    ],
)
def test_invalid_settings_are_rejected_before_reading(task: AnswerTask, change: dict[str, Any]) -> None:
    named = "train.*test" if len(change) == 2 else next(f"{name}.*{value}" for name, value in change.items())
    with pytest.raises(ValueError, match=named):
        replace(task, **change)


def test_verify_all_equals_verify_per_completion(task: AnswerTask, tmp_path: Path) -> None:
    assert isinstance(task, Task)
    assert isinstance(task, VerifiesTogether)
    problems = task.problems("test")[:3]
    texts = [rf"\boxed{{{problems[0].answer}}}", r"so \boxed{-1}", "no idea"]
    together = task.verify_all(problems, texts)
    assert [verdict.status for verdict in together] == ["ok", "wrong", "unparsed"]
    assert together == [task.verify(problem, text) for problem, text in zip(problems, texts, strict=True)]
    assert [step.state for step in task.parse_steps(problems[0], "One. Two.")] == [1, 2]
    letters = write(tmp_path / "letters.jsonl", [{"question": "Which?", "answer": letter} for letter in "ABE"])
    choice = replace(task, train=None, test=letters, judge="choice")
    problem = choice.problems("test")[1]
    assert choice.verify(problem, r"It is \boxed{B}.").correct
    assert not choice.verify(problem, r"It is \boxed{A}.").correct


UNBOXED = r"So the answer is 42."
"""Correct, but not in a box."""


@pytest.mark.parametrize(
    ("completion", "status", "reason", "any_form"),
    [
        (r"It is \boxed{42}.", "ok", "", True),
        (UNBOXED, "unparsed", "not boxed", True),
        ("<answer>42</answer>", "unparsed", "not boxed", True),
        (r"<think>\boxed{42}</think> The answer is 42.", "unparsed", "not boxed", True),
        ("So the answer is 41.", "unparsed", "no boxed answer", False),
        ("no idea", "unparsed", "no boxed answer", False),
        (r"So \boxed{41}. The answer is 42.", "wrong", "another number", False),
        (r"\boxed{42", "unparsed", "box not closed", False),
    ],
)
@pytest.mark.parametrize("pooled", [False, True])
def test_accept_boxed_counts_only_answers_in_a_box(
    task: AnswerTask, completion: str, status: str, reason: str, any_form: bool, pooled: bool
) -> None:
    def verifier(pairs: Sequence[tuple[str, str]], judge: str) -> list[Verdict]:
        return [verify_answer(gold, text) for gold, text in pairs]

    problem = Problem(id="0", prompt="What is 41 + 1?", answer="42")
    strict = replace(task, accept="boxed", verifier=verifier if pooled else None)
    verdict = strict.verify(problem, completion)
    assert (verdict.status, verdict.reason) == (status, reason)
    assert verdict.fields[CORRECT_IN] == {"boxed": verdict.correct, "any": any_form}
    either = replace(strict, accept="any").verify(problem, completion)
    assert either.correct is any_form
    assert either.fields == verdict.fields, "both say both"
    assert verify_answer("42", UNBOXED).correct, "the function itself takes any form"


def test_accept_boxed_counts_only_letters_in_a_box(task: AnswerTask) -> None:
    problem = Problem(id="0", prompt="Which?", answer="B")
    texts = [r"\boxed{B}", "The answer is B.", "\\boxed{2x}\nThe answer is B.", r"\boxed{C}", "I do not know."]
    strict = replace(task, judge="choice", accept="boxed").verify_all([problem] * 5, texts)
    either = replace(task, judge="choice", accept="any").verify_all([problem] * 5, texts)
    assert [verdict.correct for verdict in strict] == [True, False, False, False, False]
    assert [verdict.correct for verdict in either] == [True, True, True, False, False]
    reasons = ["", "not boxed", "not boxed", "another letter", "no boxed answer"]
    assert [verdict.reason for verdict in strict] == reasons
    assert correct_in_forms(strict) == correct_in_forms(either)
    assert correct_in_forms(either) == {"boxed": [True] + [False] * 4, "any": [True] * 3 + [False] * 2}


@pytest.mark.parametrize("pooled", [False, True])
def test_percent_sign_is_optional_if_question_asks_for_percentage(task: AnswerTask, pooled: bool) -> None:
    verified_texts: list[str] = []

    def verifier(pairs: Sequence[tuple[str, str]], judge: str) -> list[Verdict]:
        verified_texts.extend(text for _, text in pairs)
        return [verify_answer(gold, text) for gold, text in pairs]

    judging = replace(task, verifier=verifier if pooled else None)
    assert judging == task, "the verifier is no part of what is read"
    questions = ["What percent is left?", "What is left?", "What percentage is left?"]
    problems = [Problem(id=question, prompt=question, answer="20") for question in questions]
    found = judging.verify_all(problems, [r"\boxed{20\%}", r"\boxed{20\%}", r"\boxed{30\%}"])
    assert [verdict.status for verdict in found] == ["ok", "wrong", "wrong"]
    assert found[2].reason == "another number"
    assert len(verified_texts) == (3 + 2 if pooled else 0), "only what may be right otherwise is judged again"


def test_function_task_verifies_user_defined_rows(task: AnswerTask, tmp_path: Path) -> None:
    rows = [{"key": f"k{number}", "word": f"w{number}", "length": number} for number in range(20)]

    def echo(problems: Sequence[Problem], completions: Sequence[str]) -> list[Verdict]:
        pairs = zip(problems, completions, strict=True)
        return [Verdict(status="wrong", reason=f"{one.id} {text}") for one, text in pairs]

    own = FunctionTask(
        name="words",
        path=None,
        train=write(tmp_path / "words.jsonl", rows),
        validation=None,
        test=None,
        format=RowTemplate(prompt="How long is {word}?", answer="length", id="key"),
        on_bad="refuse",
        train_problems=None,
        validation_problems=3,
        test_problems=4,
        verifier=echo,
    )
    assert isinstance(own, VerifiesTogether)
    problems = [problem for split in get_args(Split) for problem in own.problems(split)]
    (seventh,) = [one for one in problems if one.id == "words/train/k7"]
    assert (seventh.prompt, seventh.answer, dict(seventh.fields)) == ("How long is w7?", "7", rows[7])
    assert own.verify_all([seventh, seventh], ["a", "b"])[1].reason == "words/train/k7 b"
    assert own.verify(seventh, "a").reason == "words/train/k7 a"
    again = write(tmp_path / "twice.jsonl", [*rows, {**rows[0], "key": "k3"}])
    assert_refused(own, "line 21: .*'k3'.* line 4", train=again)
    example = Problem(id="0", prompt="", answer="pmal")
    results = [same_text(example, text) for text in (" pmal\n", "lamp", " \n")]
    assert results == [True, "another text than the answer", "nothing is written"]


def test_stand_in_task_uses_generated_problems_only_without_path(task: AnswerTask) -> None:
    generated = replace(task, name="generated")
    for source, path, chosen in [
        ("hub", None, task),
        ("generated", None, generated),
        ("generated", "/data", task),
        ("hub", "/data", task),
    ]:
        parts: dict[str, Any] = {"source": source, "path": path, "real": task, "generated": generated}
        assert stand_in_task(**parts, **NO_SIZES) == chosen
        assert stand_in_task(**parts, **NO_SIZES | {"test_problems": 0}) == replace(chosen, test_problems=0)
    with pytest.raises(ValueError, match=r"^source .*'web'"):
        stand_in_task(source="web", path=None, real=task, generated=generated, **NO_SIZES)
