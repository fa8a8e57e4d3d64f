"""A study as it was launched, kept in MLflow: what was fixed before the first run, and its file as it was last run.

The run of kind ``study`` in the study's experiment:

    params                 primary.metric, primary.arm, primary.baseline, when it was first launched
    first/NAME.yaml        its file then
    NAME.yaml              its file at the last launch, by which who has no such file reads its runs
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict

import yaml

from experiments.mlflow_sync import Tracker
from experiments.studies.plan import FILE, Primary, Study, read_study

KIND, FIRST = "study", "first"


def keep(tracker: Tracker, study: Study) -> None:
    """Record in MLflow that a study is launched; what was fixed at the first launch stays."""
    if study.file is None:
        return
    key = f"{study.name}/{KIND}"
    found = tracker.find_run(study.name, key)
    if found is not None and found.lifecycle_stage == "deleted":
        return  # a person deleted it
    run_id = found.run_id if found else None
    if run_id is None:
        tags = {"key": key, "kind": KIND, "experiment": study.name}
        run_id = tracker.create_run(study.name, name=f"study {study.name}", start=time.time(), tags=tags, parent=None)
        tracker.describe(run_id, params=_params(study.primary), tags={})
        tracker.log_file(run_id, study.file, FIRST)
    tracker.log_file(run_id, study.file, "")
    tracker.set_status(run_id, "FINISHED", end=time.time())


def launched(tracker: Tracker, names: Sequence[str]) -> list[Study]:
    """The studies among experiments' names, as their files were when they were last launched."""
    return [
        read_study(run.experiment, yaml.safe_load(tracker.artifacts.read(run.run_id, file)))
        for run in tracker.runs(names, kind=KIND)
        if (file := f"{run.experiment}{FILE}") in tracker.artifacts.files(run.run_id)
    ]


def with_launched(tracker: Tracker, studies: Sequence[Study], names: Sequence[str]) -> list[Study]:
    """The studies that have a file here, then those among ``names`` that MLflow alone knows."""
    here = {study.name for study in studies}
    return [*studies, *launched(tracker, [name for name in names if name not in here])]


def notes_on_primary(tracker: Tracker, study: Study) -> list[str]:
    """A sentence where what decides today is not what did when the study was first launched."""
    first = next(iter(tracker.runs([study.name], kind=KIND)), None)
    if first is None or all(first.params.get(key) == value for key, value in _params(study.primary).items()):
        return []
    metric, arm, baseline = (first.params.get(key, "unknown") for key in _params(study.primary))
    when = time.strftime("%Y-%m-%d", time.gmtime(first.start))
    return [
        f"What decides was another when the study was first launched, on {when}: {metric} of {arm} minus that of "
        f"{baseline}."
    ]


def _params(primary: Primary) -> dict[str, str]:
    return {f"primary.{key}": value for key, value in asdict(primary).items()}
