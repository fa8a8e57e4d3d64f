"""Runs in MLflow, written and read back. Whatever is sent twice is there once."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlparse

from experiments.mlflow_sync.describe import DataSet, mlflow_name
from experiments.mlflow_sync.store import (
    READER_SECONDS,
    SYNC_SECONDS,
    TrackerError,
    database_file,
    open_client,
    tracking_address,
)
from experiments.run_folder.reader import Metric
from experiments.system.secrets import without_login

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities import Run, RunInfo

MOST_METRICS, MOST_PARAMS, MOST_RUNS = 1000, 100, 1000  # per request: MLflow's limits
LONGEST_TAG = 5000
TABLES_TAG = "mlflow.loggedArtifacts"
NOTE_TAG = "mlflow.note.content"
PARENT_TAG = "mlflow.parentRunId"


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as MLflow has it."""

    run_id: str
    experiment: str
    status: str
    start: float  # seconds since the epoch
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]  # the last value of each name


class Tracker:
    """MLflow at one address; every method raises :class:`TrackerError` where it does not answer or refuses.

    An answer is waited for ``seconds``; ``address`` is then the one that may be shown and written down.
    """

    def __init__(self, address: str, *, seconds: int = SYNC_SECONDS) -> None:
        self.address = without_login(address)
        self._client = open_client(address, seconds=seconds)
        self._database = database_file(address)
        self.artifacts = Artifacts(client=self._client, database=self._database)
        self._experiments: dict[str, str] = {}

    # Writing

    def find_run(self, experiment: str, key: str) -> RunInfo | None:
        """The run tagged with ``key``, also one that a person deleted; None where there is none."""
        from mlflow.entities import ViewType

        mark = '"' if '"' not in key else "'"
        at = [self._experiment_id(experiment)]
        found = self._client.search_runs(at, f"tags.key = {mark}{key}{mark}", ViewType.ALL, max_results=1)
        return found[0].info if found else None

    def create_run(
        self, experiment: str, *, name: str, start: float, tags: Mapping[str, str], parent: str | None
    ) -> str:
        """Make a run, below the run ``parent`` if given; returns its id.

        An experiment that a person deleted takes none: to restore it would bring back its runs, too, and comparisons
        would count them again.
        """
        of = self._experiment_id(experiment)
        if self._client.get_experiment(of).lifecycle_stage == "deleted":
            restore = f"MLFLOW_TRACKING_URI={self.address} mlflow experiments restore --experiment-id {of}"
            raise TrackerError(f"MLflow's experiment {experiment!r} was deleted, and takes no run until: {restore}")
        nesting = {PARENT_TAG: parent} if parent is not None else {}
        run = self._client.create_run(of, start_time=round(1000 * start), tags={**tags, **nesting}, run_name=name)
        return run.info.run_id

    def describe(self, run_id: str, *, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Send parameters, which MLflow never lets change, and tags, which it does."""
        from mlflow.entities import Param, RunTag

        self._client.log_batch(run_id, tags=[RunTag(mlflow_name(k), v[:LONGEST_TAG]) for k, v in tags.items()])
        listed = [Param(name, value) for name, value in params.items()]
        for first in range(0, len(listed), MOST_PARAMS):
            self._client.log_batch(run_id, params=listed[first : first + MOST_PARAMS])

    def log_data_sets(self, run_id: str, data_sets: Sequence[DataSet]) -> None:
        """Send what a run read, as data sets made by code, with their settings as the source."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        inputs = []
        for one in data_sets:
            source = json.dumps({"tags": dict(one.settings)}, ensure_ascii=False)
            profile = json.dumps({"files": dict(one.files)}, ensure_ascii=False)
            data_set = Dataset(one.name, one.digest, source_type="code", source=source, profile=profile)
            inputs.append(DatasetInput(data_set, [InputTag("mlflow.data.context", one.context)]))
        self._client.log_inputs(run_id, datasets=inputs)

    def log_metrics(self, run_id: str, metrics: Sequence[Metric]) -> None:
        """Send numbers with the times at which they were first logged: by those MLflow knows a repetition."""
        from mlflow import entities

        listed = [entities.Metric(mlflow_name(m.name), m.value, round(1000 * m.time), m.step) for m in metrics]
        for first in range(0, len(listed), MOST_METRICS):
            self._client.log_batch(run_id, metrics=listed[first : first + MOST_METRICS])

    def log_file(self, run_id: str, path: Path, folder: str) -> None:
        """Send a file into a folder of the run's artifacts ("" is their root), in place of one of the same name."""
        self._client.log_artifact(run_id, str(path), artifact_path=folder or None)

    def log_table(self, run_id: str, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Send rows as ``tables/<name>.json`` in the form that MLflow's pages show as a table."""
        columns = list(dict.fromkeys(column for row in rows for column in row))
        data = [[row.get(column) for column in columns] for row in rows]
        file = f"tables/{name}.json"
        self._client.log_text(run_id, json.dumps({"columns": columns, "data": data}, ensure_ascii=False), file)
        known = json.loads(self._client.get_run(run_id).data.tags.get(TABLES_TAG, "[]"))
        entry = {"path": file, "type": "table"}
        if entry not in known:
            self._client.set_tag(run_id, TABLES_TAG, json.dumps([*known, entry]))

    def write_note(self, run_id: str, text: str, *, pictures: Sequence[str]) -> None:
        """What MLflow's page of a run begins with: ``pictures`` among its artifacts, then ``text``, which is Markdown.

        MLflow limits a tag's length, so a long text ends at a whole line.
        """
        shown = "".join(f"![{path}](get-artifact?path={quote(path)}&run_uuid={run_id})\n\n" for path in pictures)
        note = shown + text
        note = note if len(note) <= LONGEST_TAG else note[:LONGEST_TAG].rpartition("\n")[0]
        self._client.set_tag(run_id, NOTE_TAG, note)

    def set_status(self, run_id: str, status: str, *, end: float) -> None:
        """RUNNING, FINISHED, FAILED or KILLED; the end's time (seconds since the epoch) belongs to the last three."""
        if status == "RUNNING":
            self._client.update_run(run_id, status=status)
        else:
            self._client.set_terminated(run_id, status, end_time=round(1000 * end))

    def tag_experiment(self, name: str, tag: str, value: str) -> None:
        """Tag an experiment, in place of what the tag was."""
        self._client.set_experiment_tag(self._experiment_id(name), tag, value)

    # Reading

    def experiments(self) -> list[str]:
        """The names of all experiments, sorted; MLflow's own empty "Default" left out."""
        return sorted(self.experiment_ids())

    def experiment_ids(self) -> dict[str, str]:
        """Name → id, the newest first; the rest as for :meth:`experiments`."""
        return {e.name: e.experiment_id for e in self._client.search_experiments() if e.name != "Default"}

    def runs(self, experiments: Sequence[str], *, kind: str) -> list[TrackedRun]:
        """All runs of one kind in the named experiments, oldest first."""
        names = {e.experiment_id: e.name for e in self._client.search_experiments() if e.name in experiments}
        found: list[Run] = []
        token: str | None = ""
        while names and token is not None:
            page = self._client.search_runs(
                list(names), f"tags.kind = '{kind}'", 1, MOST_RUNS, ["attributes.start_time"], token or None
            )
            found += page
            token = page.token or None
        self.artifacts.remember(found)
        return [
            TrackedRun(
                run_id=run.info.run_id,
                experiment=names[run.info.experiment_id],
                status=run.info.status,
                start=run.info.start_time / 1000,
                tags=run.data.tags,
                params=run.data.params,
                metrics={name: _as_logged(value) for name, value in run.data.metrics.items()},
            )
            for run in found
        ]

    def history(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        """(step, value) by step; of a step logged twice, as after a resumption, the later value."""
        history = self._client.get_metric_history(run_id, mlflow_name(metric))
        return sorted({m.step: _as_logged(m.value) for m in sorted(history, key=lambda m: m.timestamp)}.items())

    def table(self, run_id: str, name: str) -> list[dict[str, Any]]:
        """The rows of a table that :meth:`log_table` sent."""
        content = json.loads(self.artifacts.read(run_id, f"tables/{name}.json"))
        return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]

    def _experiment_id(self, name: str) -> str:
        if name not in self._experiments:
            found = self._client.get_experiment_by_name(name)
            self._experiments[name] = self._create_experiment(name) if found is None else found.experiment_id
        return self._experiments[name]

    def _create_experiment(self, name: str) -> str:
        # A server decides for itself. For a file MLflow's choice is the working directory, ours beside the database.
        location = None if self._database is None else (self._database.parent / "artifacts" / name).as_uri()
        try:
            return self._client.create_experiment(name, artifact_location=location)
        except TrackerError:
            if (found := self._client.get_experiment_by_name(name)) is None:
                raise
            return found.experiment_id  # another process was faster


class Artifacts:
    """The files of runs, by run id and path; also where the database was copied from another machine.

    A database names a run's files by where they lay when the run was made. Where that folder is not there, they are
    looked for beside the database, where a copy of the whole of ``mlruns/`` has them:

        mlruns/mlflow.db
        mlruns/artifacts/<experiment>/<run id>/artifacts/…
    """

    def __init__(self, *, client: MlflowClient, database: Path | None) -> None:
        self._client = client
        self._beside = None if database is None else database.parent / "artifacts"
        self._folders: dict[str, Path | None] = {}  # by run id; None where a server has the files

    def remember(self, runs: Sequence[Run]) -> None:
        """Where the files of these runs lie, so that it need not be asked for each."""
        for run in runs:
            address = run.info.artifact_uri or ""
            parsed = urlparse(address)
            local = {"": address, "file": unquote(parsed.path)}.get(parsed.scheme)
            folder = None if local is None else Path(local)
            if folder is not None and not folder.is_dir() and self._beside is not None:
                folder = self._beside.joinpath(*folder.parts[-3:])  # experiment, run, "artifacts"
            self._folders[run.info.run_id] = folder

    def files(self, run_id: str, folder: str = "") -> list[str]:
        """Paths of all files of a run in ``folder`` and below, sorted; none where there is no such folder."""
        local = self._folder(run_id)
        if local is None:
            return sorted(self._list(run_id, folder))
        return sorted(p.relative_to(local).as_posix() for p in (local / folder).rglob("*") if p.is_file())

    def read(self, run_id: str, path: str) -> bytes:
        """The content of a file; raises OSError or TrackerError where there is none."""
        local = self._folder(run_id)
        if local is not None:
            return (local / path).read_bytes()
        with tempfile.TemporaryDirectory() as folder:
            return Path(self._client.download_artifacts(run_id, path, folder)).read_bytes()

    def _folder(self, run_id: str) -> Path | None:
        if run_id not in self._folders:
            self.remember([self._client.get_run(run_id)])
        return self._folders[run_id]

    def _list(self, run_id: str, folder: str) -> Iterator[str]:
        for entry in self._client.list_artifacts(run_id, folder or None):
            if entry.is_dir:
                yield from self._list(run_id, entry.path)
            else:
                yield entry.path


def connect() -> Tracker:
    """MLflow at the address in use, for a command that a person waits for."""
    return Tracker(tracking_address(), seconds=READER_SECONDS)


def _as_logged(value: float) -> float:
    """What was logged where MLflow has ``value``: it keeps the largest float for an infinity."""
    return math.copysign(math.inf, value) if abs(value) >= sys.float_info.max else value
