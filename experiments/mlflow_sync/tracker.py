"""Writes runs to MLflow and reads them back. Data sent twice is stored once."""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from experiments.mlflow_sync.describe import mlflow_name
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
    from mlflow.entities import RunInfo
    from mlflow.store.entities import PagedList

MOST_METRICS, MOST_PARAMS, MOST_RUNS = 1000, 100, 1000  # per request: MLflow's limits
LONGEST_TAG = 5000
TABLES_TAG = "mlflow.loggedArtifacts"
NOTE_TAG = "mlflow.note.content"
PARENT_TAG = "mlflow.parentRunId"


@dataclass(frozen=True, kw_only=True)
class TrackedRun:
    """A run as recorded in MLflow."""

    run_id: str
    experiment: str
    status: str
    start: float  # seconds since the epoch
    tags: Mapping[str, str]
    params: Mapping[str, str]
    metrics: Mapping[str, float]  # the last value of each name


class Tracker:
    """MLflow at one address. Every method raises :class:`TrackerError` if MLflow does not respond or rejects a request.

    A request times out after ``seconds``. The attribute ``address`` has no login and may be printed and stored.
    """

    def __init__(self, address: str, *, seconds: int = SYNC_SECONDS) -> None:
        self.address = without_login(address)
        self._client = open_client(address, seconds=seconds)
        self._database = database_file(address)
        self.artifacts = Artifacts(self._client)
        self._experiments: dict[str, str] = {}

    # Writing

    def find_run(self, experiment: str, key: str) -> RunInfo | None:
        """Returns the run tagged with ``key``, including one that a person deleted; None if there is none."""
        from mlflow.entities import ViewType

        mark = '"' if '"' not in key else "'"  # MLflow's filters have no escape for a quote
        at = [self._experiment_id(experiment)]
        found = self._client.search_runs(at, f"tags.key = {mark}{key}{mark}", ViewType.ALL, max_results=1)
        return found[0].info if found else None

    def create_run(
        self, experiment: str, *, name: str, start: float, tags: Mapping[str, str], parent: str | None
    ) -> str:
        """Creates a run, below the run ``parent`` if given, and returns its id.

        Raises TrackerError if a person deleted the experiment: restoring it here would also restore its runs, and
        comparisons would count them again.
        """
        of = self._experiment_id(experiment)
        if self._client.get_experiment(of).lifecycle_stage == "deleted":
            restore = f"MLFLOW_TRACKING_URI={self.address} mlflow experiments restore --experiment-id {of}"
            raise TrackerError(
                f"MLflow's experiment {experiment!r} was deleted and accepts no runs; to restore it: {restore}"
            )
        nesting = {PARENT_TAG: parent} if parent is not None else {}
        run = self._client.create_run(of, start_time=round(1000 * start), tags={**tags, **nesting}, run_name=name)
        return run.info.run_id

    def describe(self, run_id: str, *, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Sends tags, which may change, and parameters that the run does not have yet."""
        from mlflow.entities import Param, RunTag

        self._client.log_batch(run_id, tags=[RunTag(mlflow_name(k), v[:LONGEST_TAG]) for k, v in tags.items()])
        # MLflow rejects another value of a parameter that it has: a stage keeps those of the code that began it
        known = self._client.get_run(run_id).data.params if params else {}
        listed = [Param(name, value) for name, value in params.items() if name not in known]
        for first in range(0, len(listed), MOST_PARAMS):
            self._client.log_batch(run_id, params=listed[first : first + MOST_PARAMS])

    def log_metrics(self, run_id: str, metrics: Sequence[Metric]) -> None:
        """Sends metrics with the times at which they were first logged, so that MLflow recognises duplicates."""
        from mlflow import entities

        listed = [entities.Metric(mlflow_name(m.name), m.value, round(1000 * m.time), m.step) for m in metrics]
        for first in range(0, len(listed), MOST_METRICS):
            self._client.log_batch(run_id, metrics=listed[first : first + MOST_METRICS])

    def log_file(self, run_id: str, path: Path, folder: str) -> None:
        """Sends a file to a folder of the run's artifacts ("" is the root) and replaces one of the same name."""
        self._client.log_artifact(run_id, str(path), artifact_path=folder or None)

    def log_table(self, run_id: str, name: str, rows: Sequence[Mapping[str, Any]]) -> None:
        """Sends rows as ``tables/<name>.json`` in the format that MLflow's pages show as a table."""
        columns = list(dict.fromkeys(column for row in rows for column in row))
        data = [[row.get(column) for column in columns] for row in rows]
        file = f"tables/{name}.json"
        self._client.log_text(run_id, json.dumps({"columns": columns, "data": data}, ensure_ascii=False), file)
        known = json.loads(self._client.get_run(run_id).data.tags.get(TABLES_TAG, "[]"))
        entry = {"path": file, "type": "table"}
        if entry not in known:
            self._client.set_tag(run_id, TABLES_TAG, json.dumps([*known, entry]))

    def write_note(self, run_id: str, text: str, *, pictures: Sequence[str]) -> None:
        """Sets the note at the top of a run's page: ``pictures`` from its artifacts, then ``text`` in Markdown.

        MLflow limits the length of a tag, so a long note is cut after a whole line.
        """
        shown = "".join(f"![{path}](get-artifact?path={quote(path)}&run_uuid={run_id})\n\n" for path in pictures)
        note = shown + text
        note = note if len(note) <= LONGEST_TAG else note[:LONGEST_TAG].rpartition("\n")[0]
        self._client.set_tag(run_id, NOTE_TAG, note)

    def set_status(self, run_id: str, status: str, *, end: float) -> None:
        """Sets RUNNING, FINISHED, FAILED or KILLED. ``end`` (seconds since the epoch) is used for the last three."""
        if status == "RUNNING":
            self._client.update_run(run_id, status=status)
        else:
            self._client.set_terminated(run_id, status, end_time=round(1000 * end))

    def tag_experiment(self, name: str, tag: str, value: str) -> None:
        """Sets a tag of an experiment and replaces its old value."""
        self._client.set_experiment_tag(self._experiment_id(name), tag, value)

    # Reading

    def experiments(self) -> list[str]:
        """Returns the sorted names of all experiments except MLflow's own empty "Default"."""
        return sorted(self.experiment_ids())

    def experiment_ids(self) -> dict[str, str]:
        """Returns name → id, newest first, of the same experiments as :meth:`experiments`."""
        found = _all_pages(lambda token: self._client.search_experiments(page_token=token))
        return {one.name: one.experiment_id for one in found if one.name != "Default"}

    def runs(self, experiments: Sequence[str], *, kind: str) -> list[TrackedRun]:
        """Returns all runs of one kind in the named experiments, oldest first."""
        names = {id_: name for name, id_ in self.experiment_ids().items() if name in experiments}
        if not names:
            return []
        chosen, order = f"tags.kind = '{kind}'", ["attributes.start_time"]
        found = _all_pages(
            lambda token: self._client.search_runs(
                [*names], chosen, max_results=MOST_RUNS, order_by=order, page_token=token
            )
        )
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
        """Returns (step, value) sorted by step. If a step was logged twice, as after a resumption, the later value."""
        history = self._client.get_metric_history(run_id, mlflow_name(metric))
        return sorted({m.step: _as_logged(m.value) for m in sorted(history, key=lambda m: m.timestamp)}.items())

    def table(self, run_id: str, name: str) -> list[dict[str, Any]]:
        """Returns the rows of a table that :meth:`log_table` sent."""
        content = json.loads(self.artifacts.read(run_id, f"tables/{name}.json"))
        return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]

    def _experiment_id(self, name: str) -> str:
        if name not in self._experiments:
            found = self._client.get_experiment_by_name(name)
            self._experiments[name] = self._create_experiment(name) if found is None else found.experiment_id
        return self._experiments[name]

    def _create_experiment(self, name: str) -> str:
        # A server chooses the location itself. For a SQLite file MLflow would take the working directory; the files
        # belong beside the database instead.
        location = None if self._database is None else (self._database.parent / "artifacts" / name).as_uri()
        try:
            return self._client.create_experiment(name, artifact_location=location)
        except TrackerError:
            if (found := self._client.get_experiment_by_name(name)) is None:
                raise
            return found.experiment_id  # another process created it first


class Artifacts:
    """The files of runs, by run id and path."""

    def __init__(self, client: MlflowClient) -> None:
        self._client = client

    def files(self, run_id: str, folder: str = "") -> list[str]:
        """Returns the sorted paths of all files of a run in ``folder`` and below; empty if there is no such folder."""
        return sorted(self._list(run_id, folder))

    def read(self, run_id: str, path: str) -> bytes:
        """Returns the content of a file; raises OSError or TrackerError if it does not exist."""
        with tempfile.TemporaryDirectory() as folder:
            return Path(self._client.download_artifacts(run_id, path, folder)).read_bytes()

    def _list(self, run_id: str, folder: str) -> Iterator[str]:
        for entry in self._client.list_artifacts(run_id, folder or None):
            if entry.is_dir:
                yield from self._list(run_id, entry.path)
            else:
                yield entry.path


def _all_pages(search: Callable[[str | None], PagedList[Any]]) -> Iterator[Any]:
    """Yields the results of a search on all of its pages. ``search`` returns the page of a token, None: the first."""
    token = None
    while True:
        page = search(token)
        yield from page
        if not (token := page.token):
            return


def connect() -> Tracker:
    """Connects to MLflow at ``tracking_address()`` with the short timeout of an interactive command."""
    return Tracker(tracking_address(), seconds=READER_SECONDS)


def _as_logged(value: float) -> float:
    """Returns the value that was logged: MLflow stores infinity as the largest float."""
    return math.copysign(math.inf, value) if abs(value) >= sys.float_info.max else value
