"""Problems and scores of reasoning-gym: the splits, what counts as correct, refused datasets."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import reasoning_gym
from reasoning_gym.factory import DATASETS

from contrastive_reasoning.rewards import FunctionReward, FunctionVerifier
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.problem_set import FunctionTask
from contrastive_reasoning.tasks.reasoning_gym import FIRST_SEEDS, MOST, REFUSED, dataset_of, gym_task, score
from datamodules.gold_answers import with_gold

WITHOUT_GOLD = ("boxnet", "graph_color", "propositional_logic", "rubiks_cube", "rush_hour")
ONE_DIGIT = {"max_terms": 2, "max_digits": 1}
"""Settings of chain_sum with 200 different questions."""


def in_this_process(*, function: Callable[..., Any]) -> Any:
    """Stands for the verifier's worker processes: what the function returns."""
    return lambda problems, completions: [function(*pair) for pair in zip(problems, completions, strict=True)]


def task(dataset: str = "chain_sum", **changes: Any) -> FunctionTask:
    settings: dict[str, Any] = {"name": f"reasoning_gym_{dataset}", "dataset": dataset, "settings": None}
    settings |= {"prompt": "{question}\nAnswer in <answer>.", "tag": "answer", "verifier": in_this_process}
    settings |= {"train_problems": 40, "validation_problems": 8, "test_problems": 8}
    return gym_task(**settings | changes)


def verdict(dataset: str, completion: str, **changes: Any) -> Any:
    made = task(dataset, **changes)
    return made.verify(made.problems("train")[0], completion)


def test_training_problems_are_the_different_items_of_the_library_in_order() -> None:
    made = task(settings=ONE_DIGIT, train_problems=150, validation_problems=20, test_problems=20)
    items = reasoning_gym.create_dataset("chain_sum", seed=FIRST_SEEDS["train"], size=10_000, **ONE_DIGIT)
    held_out = [problem for split in ("test", "validation") for problem in made.problems(split)]
    expected: dict[str, str] = {}
    for item in items:
        expected.setdefault(f"{item['question']}\nAnswer in <answer>.", f"<answer>{item['answer']}</answer>")
    for problem in held_out:
        expected.pop(problem.prompt)
    found = [(problem.prompt, problem.answer) for problem in made.problems("train")]
    assert found == [*expected.items()][:150]  # of 200 different questions
    assert len({problem.prompt for problem in held_out}) == 40
    assert len({problem.id for problem in [*held_out, *made.problems("train")]}) == 190


def test_dataset_with_too_few_questions_is_named() -> None:
    made = task(settings=ONE_DIGIT, train_problems=161, validation_problems=20, test_problems=20)
    with pytest.raises(ValueError, match=r"chain_sum: 160 different questions .* train_problems=161"):
        made.problems("train")


def test_seeds_of_splits_share_no_item() -> None:
    """Item i of seed s is drawn with s + i, so neighbouring seeds would share all items but one."""
    first = sorted(FIRST_SEEDS.values())
    assert all(later - earlier >= MOST for earlier, later in pairwise(first))


def test_only_full_marks_are_correct() -> None:
    gold = task("gcd", tag=None).problems("train")[0].answer
    assert verdict("gcd", f"<answer>1000003</answer> so <answer> {gold} </answer>") == 1.0
    assert verdict("gcd", f"<think><answer>{gold}</answer></think>1000003") == "no <answer> with an answer"
    assert verdict("gcd", f"{gold}") == "no <answer> with an answer"
    assert verdict("gcd", f"{gold}\n", tag=None) == 1.0
    assert verdict("gcd", f"<answer>{gold} or 1000003</answer>") < 1  # the library pays a part if it holds the gold
    assert 0 < verdict("palindrome_generation", "<answer>a</answer>") < 1


@pytest.mark.parametrize("tag", ["answer", None])
def test_gold_answer_is_a_correct_completion(tag: str | None) -> None:
    """The warm start teaches it as it is."""
    made = task(tag=tag)
    assert {made.verify(problem, problem.answer) for problem in with_gold(made, "train")} == {1.0}


def test_answer_that_a_scorer_cannot_read_is_wrong() -> None:
    assert verdict("prime_factorization", "<answer>no</answer>") == "the scorer cannot read it: ValueError"
    problem = task("prime_factorization").problems("train")[0]
    assert score(problem, "<answer>no</answer>", tag="answer") == 0.0


def test_scores_come_from_worker_processes() -> None:
    limits: dict[str, Any] = {"workers": 1, "limit_s": 60.0, "memory_mib": 2048, "max_failures": 0.2}
    made = task("palindrome_generation", verifier=partial(FunctionVerifier, **limits))
    problem = made.problems("train")[0]
    completions = [problem.answer, "<answer>a</answer>", "none"]
    found = made.verify_all([problem] * 3, completions)
    assert [one.status for one in found] == ["ok", "wrong", "wrong"]
    assert found[1].reason.startswith("scored 0.")
    made.verifier.close()  # pyright: ignore[reportFunctionMemberAccess]
    function = partial(score, tag="answer")
    reward = FunctionReward(name="score", function=function, **limits)
    numbers = [reply.value for reply in reward.pool([(problem, text) for text in completions])]
    reward.close()
    assert numbers[0] == 1.0
    assert 0 < float(str(numbers[1])) < 1
    assert numbers[2] == 0.0


@pytest.mark.parametrize("dataset", WITHOUT_GOLD)
def test_dataset_without_gold_answers_has_problems_but_no_warm_start(dataset: str) -> None:
    made = task(dataset, train_problems=3, validation_problems=1, test_problems=1)
    assert [problem.answer for problem in made.problems("train")] == [""] * 3
    with pytest.raises(ValueError, match="no train problem has a gold answer"):
        with_gold(made, "train")


EXECUTE = ["countdown", "puzzle24", "simple_integration", "string_insertion"]


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"dataset": "chainsum"}, "chain_sum"),
        ({"dataset": "ransom_note"}, "order of a set"),
        ({"dataset": "game_of_life_halting"}, "every answer"),
        ({"dataset": "composite"}, "other datasets"),
        *[({"dataset": name}, "executes the answer") for name in EXECUTE],
        ({"settings": {"terms": 3}}, r"settings\.terms.*min_terms, max_terms"),
        ({"settings": {"min_terms": -1}}, "min_terms must be positive"),
        ({"prompt": "Add."}, r"\{question\}"),
        ({"train_problems": -1}, "train_problems"),
    ],
)
def test_unusable_dataset_or_setting_is_named(changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        task(**{"dataset": "chain_sum", **changes})


def test_missing_library_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "reasoning_gym", None)
    with pytest.raises(ModuleNotFoundError, match="pip install reasoning-gym"):
        task()


def questions_and_scores() -> None:
    """Prints, for every dataset that is a task, the questions and what the scorer gives gold and nonsense."""
    for name in sorted(DATASETS.keys() - {"composite"}):
        items = reasoning_gym.create_dataset(name, seed=FIRST_SEEDS["train"], size=3)
        fields = [{"dataset": name, "settings": None, "item": items[i]} for i in range(3)]
        problems = [Problem(id=str(i), prompt="", answer="", fields=fields[i]) for i in range(3)]
        paid = [] if name in REFUSED else [score(one, "no such answer", tag=None) for one in problems]
        golds = [(items[i]["answer"], items[i]) for i in range(3)]
        gold = [1.0 if answer is None else items.score_answer(answer, item) for answer, item in golds]
        print(name, repr([items[i]["question"] for i in range(3)]), min(gold), max(paid, default=0.0), sep="\t")


@pytest.mark.parametrize("name", sorted(DATASETS.keys() - REFUSED.keys()))
def test_scorer_does_not_execute_the_answer(name: str, tmp_path: Path) -> None:
    """Within brackets and without, because some scorers evaluate only what looks like a list."""
    call = f"__import__('pathlib').Path({str(tmp_path / 'executed')!r}).touch()"
    items = dataset_of(name, None)
    fields = {"dataset": name, "settings": None, "item": items[0]}
    for text in (call, f"[{call}]", f"({call},)", f"0+{call}", f"lambda: {call}"):
        assert score(Problem(id="0", prompt="", answer="", fields=fields), text, tag=None) < 1
    assert not (tmp_path / "executed").exists()


@pytest.mark.slow
def test_every_other_dataset_is_the_same_in_every_process_and_pays_no_nonsense() -> None:
    code = "from tests.unit.tasks.test_reasoning_gym import questions_and_scores; questions_and_scores()"
    outputs = [
        subprocess.run(
            [sys.executable, "-c", code], env=os.environ | {"PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout.decode()
        for seed in ("1", "2")
    ]
    one, other = ({line.partition("\t")[0]: line for line in output.splitlines()} for output in outputs)
    differing = {name for name in one if one[name] != other[name]}
    assert differing == {name for name, reason in REFUSED.items() if "order" in reason}
    assert len(one) > 100
    for name, line in one.items():
        _, _, gold, paid = line.split("\t")
        if name not in REFUSED:
            assert (name, float(gold)) == (name, 1.0)
            assert (name, float(paid) < 1) == (name, True)
    nonsense = dataset_of("chain_sum", None)  # the refused scorer, by itself
    assert nonsense.score_answer("no such answer", nonsense[0]) < 1
    halting = reasoning_gym.create_dataset("game_of_life_halting", seed=0, size=1)
    assert halting.score_answer("no such answer", halting[0]) == 1.0
