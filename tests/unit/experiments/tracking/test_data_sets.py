"""Which data a stage is said to have read: the same problems by the same digest, other problems by another."""

from __future__ import annotations

from typing import Any

import pytest
from hydra import compose, initialize_config_module

from experiments.schema import register
from experiments.stages.plan import relevant_config
from experiments.tracking.data_sets import DataSet, data_sets_of

register()
CHOICES = {"task": "countdown", "datamodule": "hindsight", "suite": "countdown_laptop"}


def sets_of(stage: str, *overrides: str, files: dict[str, str] | None = None) -> list[DataSet]:
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", ["experiment=llama_critic", "policy.pretrained=null", *overrides])
    return data_sets_of(stage, relevant_config(stage, config), files=files or {}, choices=CHOICES)


@pytest.mark.parametrize(
    ("stage", "named", "context"),
    [
        ("warm_start", ["countdown"], "training"),
        ("critic", ["hindsight"], "training"),
        ("grpo", ["countdown"], "training"),
        ("evaluate", ["countdown_laptop/main"], "evaluation"),
    ],
)
def test_every_stage_says_what_it_reads(stage: str, named: list[str], context: str) -> None:
    found = sets_of(stage)
    assert [one.name for one in found] == named
    assert {one.context for one in found} == {context}
    assert found[0].made_by["task.number_range" if stage == "critic" else "number_range"] == "[1, 30]"


def test_policies_learn_from_the_problems_they_were_warmed_up_on() -> None:
    assert sets_of("warm_start")[0].digest == sets_of("grpo")[0].digest


@pytest.mark.parametrize(
    ("stage", "override"),
    [("critic", "datamodule.batch_size=7"), ("critic", "datamodule.workers=1"), ("grpo", "budget.grpo.problems=7")],
)
def test_how_data_is_read_does_not_change_which_it_is(stage: str, override: str) -> None:
    assert sets_of(stage, override)[0].digest == sets_of(stage)[0].digest


@pytest.mark.parametrize(
    ("stage", "override"),
    [
        ("critic", "datamodule.target_range=[10,60]"),
        ("grpo", "task.train_problems=9"),
        ("evaluate", "task.test_problems=9"),
    ],
)
def test_other_data_has_another_digest(stage: str, override: str) -> None:
    assert sets_of(stage, override)[0].digest != sets_of(stage)[0].digest


def test_a_file_that_changed_is_another_data_set_and_files_of_others_are_no_part_of_it() -> None:
    override = "task.longproc_dir=problems"
    before, after = (sets_of("grpo", override, files={"problems": mark, "weights": mark})[0] for mark in ("a", "b"))
    assert dict(after.files) == {"problems": "b"}
    assert before.digest != after.digest


def test_a_track_of_files_is_one_data_set() -> None:
    (found,) = sets_of("evaluate", "suite=track1")
    assert found.name == "countdown_laptop"
    assert found.made_by["answers.gsm8k"] == "gsm8k.parquet"


def test_a_stage_of_another_kind_says_nothing() -> None:
    unknown: dict[str, Any] = {"stage": "grpo"}
    assert data_sets_of("grpo", unknown, files={}, choices={}) == []
    assert data_sets_of("evaluate", unknown, files={}, choices={}) == []
