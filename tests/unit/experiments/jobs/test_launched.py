"""What MLflow stores of a launched study: the primary comparison of the first launch, and the file of the last."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.analysis.study_report import report
from experiments.cli.commands import COMMANDS
from experiments.compare import main as compare
from experiments.jobs.finished import Today
from experiments.jobs.job import Job
from experiments.jobs.study_plan import StudyError, find_study, notes_on_primary, record_launch, with_launched
from experiments.study import chosen_seeds, run_study

OTHER = "test/verifier/accuracy_sampled"


def add_arms(runs: Any) -> None:
    for arm in ("plain", "better"):
        runs.add(arm, 0, solved=[0, 1], curve={0: 0.2, 10: 0.2})


def test_report_notes_changed_primary(runs: Any, tmp_path: Path) -> None:
    assert with_launched(runs.tracker, [], [runs.name]) == notes_on_primary(runs.tracker, runs.study()) == []
    study = find_study(str(runs.file(tmp_path)))
    record_launch(runs.tracker, study)
    later = replace(study, primary=replace(study.primary, metric=OTHER))
    record_launch(runs.tracker, later)
    assert notes_on_primary(runs.tracker, study) == []
    (note,) = notes_on_primary(runs.tracker, later)
    assert "test/verifier/accuracy of better minus that of plain" in note
    add_arms(runs)
    assert note in report(runs.tracker, later, runs.counted(later), output=tmp_path / "out")
    assert note in (tmp_path / "out" / runs.name / "study.md").read_text()


def test_run_study_records_study_before_first_job(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    """The jobs are only counted, not run."""
    content = runs.content(seeds=1, start=None)
    content["common"] = ["debug=fast", f"output_dir={tmp_path / 'outputs'}"]
    for arm in content["arms"].values():
        arm["overrides"] = ["experiment=llama_baseline"]
    file = tmp_path / f"{runs.name}.yaml"
    file.write_text(json.dumps(content))
    job_counts: list[int] = []

    def run_jobs(jobs: Sequence[Job], *_: Any, **__: Any) -> list[Job]:
        assert with_launched(runs.tracker, [], [runs.name])
        job_counts.append(len(jobs))
        return []

    monkeypatch.setattr("experiments.jobs.runner.run_jobs", run_jobs)
    assert run_study(find_study(str(file)), only=[], seeds=range(100)) == 0
    assert job_counts == [2]
    assert f"{runs.name}: no seed of the baseline plain has finished yet" in capsys.readouterr().out


def test_compare_reads_study_of_last_launch_if_file_is_missing(
    runs: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    record_launch(runs.tracker, find_study(str(runs.file(tmp_path, seeds=1))))
    file = runs.file(tmp_path, seeds=3)
    record_launch(runs.tracker, find_study(str(file)))
    file.unlink()
    (study,) = with_launched(runs.tracker, [], [runs.name])
    assert (study.name, study.arms["plain"].seeds) == (runs.name, 3)
    (run,) = runs.tracker.runs([runs.name], kind="study")
    assert {f"first/{file.name}", file.name} <= set(runs.tracker.artifacts.files(run.run_id))
    add_arms(runs)
    monkeypatch.setattr("experiments.analysis.study_report.today", lambda *_: Today(runs.marks, {}))
    monkeypatch.chdir(tmp_path)
    assert compare([runs.name]) == 0
    assert "Primary: test/verifier/accuracy of better minus that of plain" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("given", "expected"),
    [([], range(5, 8)), (["seeds=2"], range(5, 7)), (["first=6", "seeds=1"], range(6, 7))],
)
def test_first_and_seeds_choose_seeds(runs: Any, tmp_path: Path, given: list[str], expected: range) -> None:
    study = replace(find_study(str(runs.file(tmp_path, seeds=3))), first_seed=5)
    assert chosen_seeds(study, COMMANDS["study"].read([runs.name, *given])) == expected


@pytest.mark.parametrize("first", [4, 8])
def test_first_that_is_no_seed_is_refused(runs: Any, tmp_path: Path, first: int) -> None:
    study = replace(find_study(str(runs.file(tmp_path, seeds=3))), first_seed=5)
    with pytest.raises(StudyError, match=f"first={first}: .* 5 to 7"):
        chosen_seeds(study, COMMANDS["study"].read([runs.name, f"first={first}"]))
