from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from contrastive_reasoning.tasks.countdown import CountdownProblem, CountdownTask
from experiments.sample.options import SampleError
from experiments.sample.question import Question, question

TASK = CountdownTask(
    style="direct",
    train="generated",
    test="generated",
    longproc_dir=None,
    counts=[3],
    number_range=[1, 30],
    target_range=[10, 50],
    max_search_lines=None,
    train_problems=0,
    validation_problems=3,
    test_problems=0,
    seed=0,
)


def asked(
    prompt: str | None = None, *, task: CountdownTask = TASK, answer: str | None = None, seed: int = 0
) -> Question:
    return question(task, prompt=prompt, answer=answer, seed=seed)


@pytest.mark.parametrize("words", ["numbers=3,5,8 target=23", "target=23 numbers=[3,5,8]"])
def test_words_of_countdown_pose_a_problem_as_the_task_does(words: str) -> None:
    found = asked(words)
    assert found.problem == CountdownProblem((3, 5, 8), 23, style="direct")
    assert found.verify is not None
    assert [found.verify(text).status for text in ("3*5=15;15+8=23", "3+5=8;8+8=16")] == ["ok", "wrong"]
    assert [step.state for step in found.steps("3*5=15;15+8=23")] == [(15, 8), (23,)]


def test_a_text_is_judged_by_its_answer_alone() -> None:
    found = asked("What is 6 times 7?", answer="42")
    assert found.problem.prompt == "What is 6 times 7?"
    assert found.verify is not None
    assert [found.verify(text).status for text in (r"\boxed{42}", r"\boxed{41}")] == ["ok", "wrong"]
    assert found.steps("3*5=15") == []  # from no numbers
    assert asked("What is 6 times 7?").verify is None


def test_without_a_prompt_the_seed_chooses_a_validation_problem_round_and_round() -> None:
    problems = TASK.problems("validation")
    assert [asked(seed=seed).problem for seed in (0, 1, 2, 3)] == [*problems, problems[0]]


@pytest.mark.parametrize(
    ("prompt", "sentence"),
    [
        ("numbers=3,x target=23", "prompt: numbers takes whole numbers of at least 0, got 'x'; prompt='numbers=3,5"),
        ("numbers= target=23", "prompt: numbers takes whole numbers of at least 0, got ''; "),
        ("numbers=3,-5 target=23", "prompt: numbers takes whole numbers of at least 0, got '-5'; "),
        ("numbers=3,٥ target=23", "prompt: numbers takes whole numbers of at least 0, got '٥'; "),
        ("numbers=3,5 target=1e9", "prompt: target takes whole numbers of at least 0, got '1e9'; "),
        (f"numbers=3,5 target={'9' * 5000}", "prompt: target takes whole numbers of at least 0, got '999"),
        ("numbers=1,2,3,4,5,6,7 target=8", "numbers=1,2,3,4,5,6,7: at most 6, got 7"),
        ("numbers=3,5", "prompt=numbers=3,5: a problem has numbers and a target, prompt='numbers=3,5,8 target=23'"),
        ("numbers=3,5 target=8 targte=9", "prompt=numbers=3,5 target=8 targte=9: a problem has numbers and a target"),
    ],
)
def test_a_problem_that_is_none_gets_its_one_sentence(prompt: str, sentence: str) -> None:
    with pytest.raises(SampleError) as caught:
        asked(prompt)
    assert str(caught.value).startswith(sentence)


def test_a_problem_of_the_task_has_its_own_answer() -> None:
    with pytest.raises(SampleError, match=r"^answer=3: a problem of the task has its own"):
        asked("numbers=3,5,8 target=23", answer="3")


def test_a_task_without_problems_or_files_says_so(tmp_path: Path) -> None:
    with pytest.raises(SampleError, match=r"^countdown has no validation problems: give a prompt$"):
        asked(task=replace(TASK, validation_problems=0))
    with pytest.raises(SampleError, match=r"^countdown: "):
        asked(task=replace(TASK, longproc_dir=str(tmp_path / "nowhere")))
