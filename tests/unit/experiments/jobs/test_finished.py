"""Which runs of a study count and which run again, also if its warm start is on another machine."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.study_notes import notes_on_left_out
from experiments.analysis.study_report import report
from experiments.jobs.finished import (
    Today,
    by_configuration,
    mark_of,
    plan_job,
    start_policies,
    still_to_do,
    today,
    todays_jobs,
)
from experiments.jobs.study_jobs import compose_job, start_jobs
from experiments.jobs.study_plan import Start, Study, StudyError, read_study
from experiments.mlflow_sync.sync import FolderSync
from experiments.run_folder.reader import POLICY
from experiments.schema import register
from experiments.stages.experiment import plans
from experiments.stages.resume import begin
from experiments.stages.stage_manifest import CONTENTS, write_manifest, write_result
from tests.unit.experiments.stages.test_plan import edit_code

FLAT = {0: 0.2, 10: 0.2}
register()


@pytest.fixture
def study(runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study of one arm and the baseline, with one seed each, in its own folder and with an empty cache of plans."""
    monkeypatch.chdir(tmp_path)
    runs.name = re.sub(r"\W", "_", runs.name)  # it is given as the override name=…
    plan_job.cache_clear()
    content = runs.content(seeds=1, start={"overrides": ["experiment=llama_baseline"], "seed": 0})
    content["common"] = ["debug=fast"]
    for arm in content["arms"].values():
        arm["overrides"] = ["experiment=llama_baseline"]
    content["arms"]["better"]["overrides"] += ["objective.clip_low=0.1"]
    return read_study(runs.name, content)


def leave_start(study: Study) -> Path:
    """Writes the folder of the warm start with a policy and a result, like the stage does."""
    (job,) = set(start_jobs(study).values())
    plan = plan_job(job)[-1]
    folder = plan.folder
    (folder / POLICY).mkdir(parents=True)
    (folder / POLICY / "model.safetensors").write_bytes(b"weights")
    (folder / "config.yaml").write_text("seed: 0\n")
    write_manifest(plan)
    write_result(folder, {"stage": "warm_start"})
    return folder


def send_start(study: Study, folder: Path, tracker: Any, name: str) -> None:
    run = Path("outputs") / "runs" / name / "2026-01-01T00-00-00-0"
    run.mkdir(parents=True)
    (run / "config.yaml").write_text("seed: 0\narm: start\n")
    entry = {"folder": str(folder), "fingerprint": folder.name, "reused": False}
    (run / "stages.json").write_text(json.dumps({"warm_start": entry}))
    (run / "summary.json").write_text("{}\n")
    FolderSync(run, tracker).send(live=False)


def add_arms(runs: Any, study: Study) -> set[Any]:
    """Adds a finished run of each arm, with the settings that its job has while the start is present."""
    marks = {mark_of(job) for job in todays_jobs(study)}
    plan_job.cache_clear()
    for mark in marks:
        runs.add(mark.arm, 0, solved=[0, 1], curve=FLAT, settings=mark.stage)
    return marks


@pytest.mark.parametrize("made_by", ["this study", "another"])
def test_runs_count_if_mlflow_recorded_missing_start(runs: Any, study: Study, made_by: str) -> None:
    folder = leave_start(study)
    marks = add_arms(runs, study)
    assert len(marks) == 2
    send_start(study, folder, runs.tracker, study.name if made_by == "this study" else f"{study.name}-before")
    shutil.rmtree(folder)
    assert today(runs.tracker, study) == Today(marks=marks, missing={})


def test_report_names_missing_start_that_mlflow_did_not_record(runs: Any, study: Study, tmp_path: Path) -> None:
    study = replace(
        study, start=Start(overrides=["experiment=llama_baseline"], seed=5)
    )  # differs from the start of every other test
    folder = leave_start(study)
    add_arms(runs, study)
    result = json.loads((folder / "result.json").read_text())
    del result[CONTENTS]
    (folder / "result.json").write_text(json.dumps(result))
    send_start(study, folder, runs.tracker, study.name)
    shutil.rmtree(folder)
    found = today(runs.tracker, study)
    assert found.missing == {0: str(folder / POLICY)}
    reason = f"their warm start is not on this machine ({folder / POLICY}), and MLflow has no record"
    with pytest.raises(StudyError) as error:
        report(runs.tracker, study, **found._asdict(), output=tmp_path)
    assert "2 runs have finished, and it is unknown whether they have today's configuration: " in str(error.value)
    assert reason in str(error.value)
    others = [run for run in runs.tracker.runs([study.name], kind="experiment") if run.tags["arm"] != "start"]
    (note,) = notes_on_left_out(study, others, found.missing)
    assert note.startswith("2 runs left out, ")
    assert f" 0: {reason}" in note
    assert notes_on_left_out(study, others, {1: "elsewhere"})[0].startswith("2 runs of another configuration left out")


def test_runs_of_other_code_count_in_report_and_run_again(runs: Any, study: Study) -> None:
    """The start was also trained under other code, and its policy differs."""
    leave_start(study)
    jobs = todays_jobs(study)
    assert today(runs.tracker, study) == Today(marks=set(), missing={}), "nothing has run"
    marks = {mark_of(job) for job in jobs}
    for mark in marks:
        runs.add(mark.arm, 0, solved=[0, 1], curve=FLAT, fingerprint=f"of other code {mark.arm}", settings=mark.stage)
    assert today(runs.tracker, study) == Today(marks=marks, missing={})
    assert len(by_configuration(runs.tracker, study, marks)[0]) == 2
    assert still_to_do(runs.tracker, study, jobs) == jobs
    for job, finished in zip(jobs, (False, True), strict=True):
        mark = plan_job(job)[-1].fingerprint
        time = "2026-01-02T00-00-00"
        runs.add(job.arm, 0, solved=[0, 1], curve=FLAT, fingerprint=mark, time=time, finished=finished)
    assert still_to_do(runs.tracker, study, jobs) == jobs[:1]


def test_study_with_resume_changed_code_plans_folders_of_its_runs(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = replace(study, common=[*study.common, "checkpoints.resume_changed_code=true"])
    (start,) = set(start_jobs(study).values())
    policies = {0: str(leave_start(study) / POLICY)}
    begin(plan_job(start)[-1])
    before = [plan_job(job) for job in todays_jobs(study)]
    for plan in (plan for stages in before for plan in stages):
        begin(plan)
        write_result(plan.folder, {})
    edit_code(monkeypatch, "experiments.assemble")
    plan_job.cache_clear()
    assert start_policies(study) == policies
    for job, earlier in zip(todays_jobs(study), before, strict=True):
        assert plan_job(job) == [*plans(compose_job(job)).values()]
        assert [plan.folder for plan in plan_job(job)] == [plan.folder for plan in earlier]


def test_mark_depends_on_seed_and_training_not_on_study_name(runs: Any, study: Study) -> None:
    study = replace(study, start=None, arms={name: replace(arm, seeds=2) for name, arm in study.arms.items()})
    marks = [mark_of(job).stage for job in todays_jobs(study)]
    assert len(set(marks)) == len(marks) == 4
    assert [mark_of(job).stage for job in todays_jobs(replace(study, name="other"))] == marks
