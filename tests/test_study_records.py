"""The arms of a study have the configurations with which its results were measured."""

from __future__ import annotations

import copy
import json

import pytest

from experiments.config.folders import study_names
from experiments.jobs.study_plan import find_study
from tests.study_records import FOLDER, changes, record_of


@pytest.mark.parametrize("name", study_names())
def test_study_arms_match_record(name: str) -> None:
    file = FOLDER / f"{name}.json"
    assert file.is_file(), f"python -m tests.study_records {name}"
    assert changes(json.loads(file.read_text()), find_study(name)) == []


def test_changes_report_changed_defaults_and_ignore_added_keys() -> None:
    study = find_study("countdown_credit_seconds")
    record = copy.deepcopy(record_of(study))
    record["most"]["budget.critic.steps"] = 1500
    del record["most"]["budget.grpo.steps"]
    assert changes(record, study) == [
        f"countdown_credit_seconds.{arm}: budget.critic.steps: 1500 -> 300"
        for arm in ("critic_calibrated", "grpo", "start")
    ]
