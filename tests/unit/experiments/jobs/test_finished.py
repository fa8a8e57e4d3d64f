"""Which runs of a study count and which run again, also if other code trained its warm start."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.study_report import notes_on_left_out
from experiments.jobs.finished import (
    Counted,
    Mark,
    Today,
    counted_runs,
    last_stage,
    mark_of,
    start_policies,
    still_to_do,
    today,
    todays_jobs,
)
from experiments.jobs.study_jobs import compose_job, jobs_of, start_jobs
from experiments.jobs.study_plan import Study, StudyError, read_study
from experiments.run_folder.reader import POLICY
from experiments.stages.experiment import plans
from experiments.stages.resume import begin, stages_taken
from experiments.stages.stage_manifest import write_manifest, write_result
from tests.unit.experiments.stages.test_plan import edit_code

FLAT = {0: 0.2, 10: 0.2}


@pytest.fixture
def study(runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Study:
    """A study of one arm and the baseline, with one seed each, in its own folder and with an empty cache of plans."""
    monkeypatch.chdir(tmp_path)
    runs.name = re.sub(r"\W", "_", runs.name)  # it is given as the override name=…
    last_stage.cache_clear()
    content = runs.content(seeds=1, start={"overrides": ["experiment=llama_baseline"], "seed": 0})
    content["common"] = ["debug=fast"]
    for arm in content["arms"].values():
        arm["overrides"] = ["experiment=llama_baseline"]
    content["arms"]["better"]["overrides"] += ["objective.clip_low=0.1"]
    return read_study(runs.name, content)


def leave_start(study: Study, *, fingerprint: str | None = None, weights: bytes = b"weights") -> Path:
    """Writes the folder of the warm start with a policy and a result, like the stage does; None: of today's code."""
    (job,) = set(start_jobs(study).values())
    plan = last_stage(job)
    folder = plan.folder.with_name(fingerprint or plan.fingerprint)
    (folder / POLICY).mkdir(parents=True)
    (folder / POLICY / "model.safetensors").write_bytes(weights)
    (folder / "config.yaml").write_text("seed: 0\n")
    write_manifest(replace(plan, folder=folder))
    write_result(folder, {"stage": "warm_start"})
    return folder


def add_arms(runs: Any, study: Study, policy: Path | None = None) -> set[Mark]:
    """Adds a finished run of each arm, with the settings of its job; None: it starts from today's policy."""
    jobs = todays_jobs(study) if policy is None else jobs_of(study, {0: str(policy)})
    marks = {mark_of(job) for job in jobs}
    last_stage.cache_clear()
    for mark in marks:
        time = "2026-01-01T00-00-00" if policy is None else "2025-12-31T00-00-00"
        runs.add(mark.arm, 0, solved=[0, 1], curve=FLAT, settings=mark.stage, fingerprint=f"{mark}", time=time)
    return marks


def test_runs_from_starts_of_any_code_count(runs: Any, study: Study) -> None:
    """The same start was trained under two versions of the code, and its weights differ."""
    earlier = leave_start(study, fingerprint="0123456789ab", weights=b"of earlier code") / POLICY
    marks = add_arms(runs, study, earlier)
    assert today(runs.tracker, study) == Today(marks=marks, missing={})
    leave_start(study)
    last_stage.cache_clear()
    both = marks | add_arms(runs, study)
    assert len(both) == 4
    assert today(runs.tracker, study) == Today(marks=both, missing={})


def test_missing_start_is_named(runs: Any, study: Study) -> None:
    folder = leave_start(study)
    add_arms(runs, study)
    shutil.rmtree(folder)
    found = today(runs.tracker, study)
    assert found.missing == {0: str(folder / POLICY)}
    with pytest.raises(StudyError, match=f"2 runs .* unknown .*{folder / POLICY}"):
        counted_runs(runs.tracker, study, found)
    counted = Counted([], runs.tracker.runs([study.name], kind="experiment"), found.missing)
    (note,) = notes_on_left_out(study, counted)
    assert note.startswith("2 runs left out, ")
    assert f"{folder / POLICY}" in note
    (note,) = notes_on_left_out(study, counted._replace(missing={1: "elsewhere"}))
    assert note.startswith("2 runs of another configuration left out")


def test_runs_of_other_code_count_in_report_and_run_again(runs: Any, study: Study) -> None:
    leave_start(study)
    jobs = todays_jobs(study)
    assert today(runs.tracker, study) == Today(marks=set(), missing={}), "nothing has run"
    marks = {mark_of(job) for job in jobs}
    for mark in marks:
        runs.add(mark.arm, 0, solved=[0, 1], curve=FLAT, fingerprint=f"of other code {mark.arm}", settings=mark.stage)
    assert today(runs.tracker, study) == Today(marks=marks, missing={})
    assert len(counted_runs(runs.tracker, study, Today(marks, {})).runs) == 2
    assert still_to_do(runs.tracker, study, jobs) == jobs
    for job, finished in zip(jobs, (False, True), strict=True):
        mark = last_stage(job).fingerprint
        time = "2026-01-02T00-00-00"
        runs.add(job.arm, 0, solved=[0, 1], curve=FLAT, fingerprint=mark, time=time, finished=finished)
    assert still_to_do(runs.tracker, study, jobs) == jobs[:1]


def test_study_with_resume_changed_code_plans_folders_of_its_runs(
    study: Study, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = replace(study, common=[*study.common, "checkpoints.resume_changed_code=true"])
    (start,) = set(start_jobs(study).values())
    policies = {0: str(leave_start(study) / POLICY)}
    begin(last_stage(start))
    before = [last_stage(job) for job in todays_jobs(study)]
    for plan in (plan for job in todays_jobs(study) for plan in stages_taken(compose_job(job)).values()):
        begin(plan)
        write_result(plan.folder, {})
    edit_code(monkeypatch, "experiments.assemble")
    last_stage.cache_clear()
    assert start_policies(study) == policies
    for job, earlier in zip(todays_jobs(study), before, strict=True):
        assert last_stage(job) == [*plans(compose_job(job)).values()][-1]
        assert last_stage(job).folder == earlier.folder


def test_mark_depends_on_seed_and_training_not_on_study_name(runs: Any, study: Study) -> None:
    study = replace(study, start=None, arms={name: replace(arm, seeds=2) for name, arm in study.arms.items()})
    marks = [mark_of(job).stage for job in todays_jobs(study)]
    assert len(set(marks)) == len(marks) == 4
    assert [mark_of(job).stage for job in todays_jobs(replace(study, name="other"))] == marks
