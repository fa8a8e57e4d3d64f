"""``Track``: the same sampling for all sets, and averages in which each set has the same weight."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from contrastive_reasoning.evaluation import Suite, Track
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, Sampling
from contrastive_reasoning.tasks.base import Problem, Verdict
from contrastive_reasoning.tasks.formats import PlainAnswer
from contrastive_reasoning.tasks.problem_set import AnswerTask, problem_sets
from datamodules.problem_rows import ProblemRows

SAMPLED = Sampling(temperature=0.6, top_k=None, top_p=0.95, max_tokens=3, stop=[])
ROWS = ProblemRows(path=None, subset=None, revision=None, split="test", file=None)
FORMAT = PlainAnswer(question="question", answer="answer", instruction="Box it.")
SIZES = {"small": 2, "large": 5, "letters": 3}


class Even(AnswerTask):
    """A completion is correct if its length is even, so that an untrained policy has some success."""

    def verify_all(self, problems: list[Problem], completions: list[str]) -> list[Verdict]:  # pyright: ignore
        return [Verdict(status="wrong" if len(text) % 2 else "ok", reason="") for text in completions]


@pytest.fixture
def track(tmp_path: Path) -> Track:
    for name, size in SIZES.items():
        gold = "A" if name == "letters" else 7
        rows = [{"question": f"Question {row} of {name}?", "answer": gold} for row in range(size)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    sets = problem_sets(
        path=str(tmp_path),
        rows=ROWS,
        format=FORMAT,
        on_bad="refuse",
        verifier=None,
        answers={"small": "small.jsonl", "large": "large.jsonl"},
        choices={"letters": "letters.jsonl"},
    )
    return Track(
        engine=Engine(max_batch_tokens=500),
        sets={name: Even(**vars(task)) for name, task in sets.items()},
        problems=None,
        samples=4,
        sampling=SAMPLED,
        greedy=replace(SAMPLED, temperature=0.0, top_p=1.0),
        k_values=[1, 4],
        quantity="verifier/accuracy_sampled",
        averages={"m_avg": ["small", "large"], "avg": ["small", "large", "letters"]},
        published=None,
        compare_with=None,
    )


def test_track_equals_a_suite_plus_averages(track: Track, policy: CausalLMPolicy) -> None:
    found = track(policy, seed=0)
    plain = Suite(engine=track.engine, settings=track.settings, published=None)(policy, seed=0)
    assert found.rows == plain.rows
    own = {name: value for name, value in found.metrics.items() if not name.startswith("average/")}
    assert own == plain.metrics
    values = {name: own[f"{name}/verifier/accuracy_sampled"] for name in SIZES}
    assert len(set(values.values())) > 1
    assert found.metrics["average/m_avg"] == pytest.approx(mean([values["small"], values["large"]]))
    assert found.metrics["average/avg"] == pytest.approx(mean(values.values()))
    assert {name: own[f"{name}/problems/count"] for name in SIZES} == SIZES
    assert list(track.columns) == ["small", "large", "letters", "m_avg", "avg"]
    assert set(track.columns.values()) <= set(found.metrics)
    settings = {"main": track.settings["small"], "other": track.settings["large"]}
    suite = Suite(engine=track.engine, settings=settings, published=None)
    assert suite.columns == {"main": "verifier/accuracy", "other": "other/verifier/accuracy"}
    assert set(suite.columns.values()) <= set(suite(policy, seed=0).metrics)


def test_problem_sets_returns_tasks_with_judge_and_path(track: Track, tmp_path: Path) -> None:
    tasks = [task for task in track.sets.values() if isinstance(task, AnswerTask)]
    assert {task.name: task.judge for task in tasks} == {"small": "answer", "large": "answer", "letters": "choice"}
    assert tasks[2].problems("test")[2].id == "letters/test/2"
    assert tasks[2].path == str(tmp_path / "letters.jsonl")


def sets_of(**files: dict[str, str]) -> Any:
    given: Any = {"answers": {}, "choices": {}} | files
    return problem_sets(path=None, rows=ROWS, format=FORMAT, on_bad="refuse", verifier=None, **given)


def test_problem_sets_without_path_raise_when_read() -> None:
    with pytest.raises(FileNotFoundError, match="path"):
        sets_of(answers={"one": "1.csv"})["one"].problems("test")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"averages": {"avg": ["small", "tiny"]}}, r"averages\.avg.*tiny.*small, large, letters"),
        ({"samples": 0}, "samples.*0"),
        ({"published": "clipo_table1", "compare_with": "PPO"}, "'PPO'.*GRPO"),
        ({"compare_with": "GRPO"}, "'GRPO'"),
        ({"sets": lambda: sets_of(answers={"one": "1.csv"}, choices={"one": "1.csv"})}, "one.*answers.*choices"),
    ],
)
def test_track_and_problem_sets_reject_contradictions(track: Track, changes: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        replace(track, **{name: value() if callable(value) else value for name, value in changes.items()})


def test_train_split_setting_reports_problems_as_seen_in_training(track: Track, policy: CausalLMPolicy) -> None:
    rows = ProblemRows(path=None, subset=None, revision=None, split="train", file=None)
    small = track.settings["small"]
    task = track.sets["small"]
    assert isinstance(task, Even)
    assert task.path
    known = replace(small, split="train", task=replace(task, train=rows.at(task.path), test=None, path=None))
    suite = Suite(engine=track.engine, settings={"main": small, "training_problems": known}, published=None)
    metrics = suite(policy, seed=0).metrics
    assert metrics["problems/seen_in_training"] == 0.0
    assert metrics["training_problems/problems/seen_in_training"] == 1.0
    assert [problem.id for problem in known.selected] == ["small/train/0", "small/train/1"]
    with pytest.raises(ValueError, match=r"split.*'training'"):
        replace(small, split="training")
