"""A study's launches in MLflow. A run of kind ``study`` in its experiment stores what was fixed before the first run:

    params                 primary.metric, primary.arm, primary.baseline at the first launch
    first/NAME.yaml        the file at the first launch
    NAME.yaml              the file at the last launch, for users who do not have it

A file that extends another study is stored with the keys of both. Without torch, so that reports begin at once.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml

from experiments.jobs.study_plan import FILE, Primary, Study, read_study, self_contained
from experiments.mlflow_sync import Tracker

KIND, FIRST = "study", "first"


def record_launch(tracker: Tracker, study: Study) -> None:
    """Records the launch of a study in MLflow. The values of the first launch are never overwritten."""
    if study.file is None:
        return
    key = f"{study.name}/{KIND}"
    found = tracker.find_run(study.name, key)
    if found is not None and found.lifecycle_stage == "deleted":
        return  # deleted by a person
    run_id = found.run_id if found else None
    if run_id is None:
        tags = {"key": key, "kind": KIND, "experiment": study.name}
        run_id = tracker.create_run(study.name, name=f"study {study.name}", start=time.time(), tags=tags, parent=None)
        tracker.describe(run_id, params=_params(study.primary), tags={})
    with TemporaryDirectory() as folder:
        file = Path(folder) / study.file.name
        file.write_text(self_contained(study.file), encoding="utf-8")
        for place in ("",) if found else (FIRST, ""):
            tracker.log_file(run_id, file, place)
    tracker.set_status(run_id, "FINISHED", end=time.time())


def launched_studies(tracker: Tracker, names: Sequence[str]) -> list[Study]:
    """Returns the studies among these names as of their last launch."""
    return [
        read_study(run.experiment, yaml.safe_load(tracker.artifacts.read(run.run_id, file)))
        for run in tracker.runs(names, kind=KIND)
        if (file := f"{run.experiment}{FILE}") in tracker.artifacts.files(run.run_id)
    ]


def with_launched(tracker: Tracker, studies: Sequence[Study], names: Sequence[str]) -> list[Study]:
    """Returns the studies with a local file, then those among ``names`` that exist only in MLflow."""
    here = {study.name for study in studies}
    return [*studies, *launched_studies(tracker, [name for name in names if name not in here])]


def notes_on_primary(tracker: Tracker, study: Study) -> list[str]:
    """Returns a sentence if the primary comparison has changed since the first launch, else an empty list."""
    first = next(iter(tracker.runs([study.name], kind=KIND)), None)
    if first is None or all(first.params.get(key) == value for key, value in _params(study.primary).items()):
        return []
    metric, arm, baseline = (first.params.get(key, "unknown") for key in _params(study.primary))
    when = time.strftime("%Y-%m-%d", time.gmtime(first.start))
    return [
        f"The primary comparison was changed after the first launch, on {when}. It was {metric} of {arm} minus that of "
        f"{baseline}."
    ]


def _params(primary: Primary) -> dict[str, str]:
    return {f"primary.{key}": value for key, value in asdict(primary).items()}
