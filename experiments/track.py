"""MLflow in our own nouns: the only module that imports it. Carries run folders there, and reads runs back.

    python -m experiments.track outputs                         send whatever MLflow does not have yet (make sync)
    python -m experiments.track outputs/runs/NAME/RUN --follow  every few seconds, until standard input speaks or ends

SQLite in ``mlruns/`` by default, the server at ``MLFLOW_TRACKING_URI`` if that is set.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from experiments.system.first_line import first_line
from experiments.system.secret_streams import conceal_output
from experiments.system.secret_values import concealed, without_login
from experiments.tracking.artifacts import Artifacts
from experiments.tracking.metrics_file import Metric
from experiments.tracking.parameters import tracker_name
from experiments.tracking.sent import Found
from experiments.tracking.sqlite_file import SCHEME, alone_at, make_whole
from experiments.tracking.tracked_run import TrackedRun, as_logged
from experiments.tracking.tracker_error import ToldAsOurs, TrackerError

if TYPE_CHECKING:
    from mlflow.entities import Run

    from experiments.tracking.data_sets import DataSet

MOST_METRICS, MOST_PARAMS, MOST_RUNS = 1000, 100, 1000  # per request: MLflow's limits
LONGEST_TAG = 5000
TABLES_TAG, CONTEXT_TAG = "mlflow.loggedArtifacts", "mlflow.data.context"
QUIET = {
    # No call is made twice: the first may have been carried out, and a run would then be there twice. It is passes that
    # are repeated, and they look at what is there. A slow server is waited for, by a process that nobody waits for.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_HTTP_REQUEST_TIMEOUT": "60",
    # nothing calls home
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}


def tracking_address() -> str:
    """``MLFLOW_TRACKING_URI``, else the SQLite file under the working directory."""
    return os.environ.get("MLFLOW_TRACKING_URI") or f"sqlite:///{Path.cwd() / 'mlruns' / 'mlflow.db'}"


class Tracker:
    """The tracker at one address. Whatever is sent twice is there once.

    Raises:
        TrackerError: for an address of no kind that MLflow knows, or a database that cannot be opened; by every method,
            where MLflow does not answer or refuses.
    """

    def __init__(self, address: str) -> None:
        self.address = without_login(address)
        """As it may be shown and written down."""
        for name, value in QUIET.items():
            os.environ.setdefault(name, value)
        # Imported late: it takes seconds, and a mirror that is asked to stop at once must already be listening.
        import mlflow

        try:
            with alone_at(address):
                make_whole(address, mlflow.MlflowClient)
                client = mlflow.MlflowClient(tracking_uri=address)
        except mlflow.MlflowException as error:
            if address.startswith(SCHEME):  # of another version's tables, say
                said = concealed(first_line(error))
                raise TrackerError(f"MLflow's database at {self.address} cannot be opened ({said})") from error
            raise TrackerError(f"MLFLOW_TRACKING_URI={self.address} is no address that MLflow knows") from error
        except Exception as error:  # any of the database's and the file system's own
            said = f"{type(error).__name__}: {concealed(first_line(error))}"
            raise TrackerError(f"MLflow's database at {self.address} cannot be opened ({said})") from error
        told = ToldAsOurs(client, kind=mlflow.MlflowException, address=self.address)
        self._client = cast("mlflow.MlflowClient", told)
        self.artifacts = Artifacts(client=self._client, address=address)
        """The files of runs."""
        self._experiments: dict[str, str] = {}

    # Writing

    def find_run(self, experiment: str, key: str) -> Found | None:
        """The run tagged with ``key``; None where there is none."""
        found = self._client.search_runs(
            [self._experiment_id(experiment)], f"tags.key = '{key}'", run_view_type=_everything(), max_results=1
        )
        if not found:
            return None
        run = found[0].info
        return Found(run.run_id, deleted=run.lifecycle_stage == "deleted", status=run.status)

    def create_run(
        self, experiment: str, *, name: str, start: float, tags: Mapping[str, str], parent: str | None
    ) -> str:
        """Make a run, below the run ``parent`` if given; returns its id.

        Raises:
            TrackerError: where a person deleted the experiment. To restore it would bring back its runs as well, and
                who compares would count them again.
        """
        of = self._experiment_id(experiment)
        if self._client.get_experiment(of).lifecycle_stage == "deleted":
            restore = f"MLFLOW_TRACKING_URI={self.address} mlflow experiments restore --experiment-id {of}"
            raise TrackerError(f"MLflow's experiment {experiment!r} was deleted, and takes no run until: {restore}")
        nesting = {"mlflow.parentRunId": parent} if parent is not None else {}
        run = self._client.create_run(of, start_time=round(1000 * start), tags={**tags, **nesting}, run_name=name)
        return run.info.run_id

    def describe(self, run_id: str, *, params: Mapping[str, str], tags: Mapping[str, str]) -> None:
        """Send parameters, which MLflow never lets change, and tags, which it does."""
        from mlflow.entities import Param, RunTag

        self._client.log_batch(run_id, tags=[RunTag(tracker_name(k), v[:LONGEST_TAG]) for k, v in tags.items()])
        listed = [Param(name, value) for name, value in params.items()]
        for first in range(0, len(listed), MOST_PARAMS):
            self._client.log_batch(run_id, params=listed[first : first + MOST_PARAMS])

    def log_data_sets(self, run_id: str, data_sets: Sequence[DataSet]) -> None:
        """Send what a run read."""
        from mlflow.entities import Dataset, DatasetInput, InputTag

        inputs = [DatasetInput(Dataset(**one.entry()), [InputTag(CONTEXT_TAG, one.context)]) for one in data_sets]
        self._client.log_inputs(run_id, datasets=inputs)

    def log_metrics(self, run_id: str, metrics: Sequence[Metric]) -> None:
        """Send numbers with the times at which they were first logged: by those MLflow knows a repetition."""
        from mlflow import entities

        listed = [entities.Metric(tracker_name(m.name), m.value, round(1000 * m.time), m.step) for m in metrics]
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

    def set_status(self, run_id: str, status: str, *, end: float | None) -> None:
        """RUNNING, FINISHED, FAILED or KILLED; the end's time (seconds since the epoch) belongs to the last three."""
        if status == "RUNNING":
            self._client.update_run(run_id, status=status)
        else:
            self._client.set_terminated(run_id, status, end_time=None if end is None else round(1000 * end))

    # Reading

    def experiments(self) -> list[str]:
        """The names of all experiments, sorted; MLflow's own empty "Default" left out."""
        return sorted(self.experiment_ids())

    def experiment_ids(self) -> dict[str, str]:
        """Name → id, the newest first; the rest as for :meth:`experiments`."""
        try:
            return {e.name: e.experiment_id for e in self._client.search_experiments() if e.name != "Default"}
        except TrackerError as error:
            cause = type(error.__cause__).__name__
            raise TrackerError(f"MLflow at {self.address} does not answer ({cause})") from error

    def runs(self, experiments: Sequence[str], *, kind: str) -> list[TrackedRun]:
        """All runs of one kind in the named experiments, oldest first."""
        names = {e.experiment_id: e.name for e in self._client.search_experiments() if e.name in experiments}
        if not names:
            return []
        found: list[Run] = []
        token: str | None = ""
        while token is not None:
            page = self._client.search_runs(
                list(names), f"tags.kind = '{kind}'", 1, MOST_RUNS, ["attributes.start_time"], token or None
            )
            found += page
            token = page.token or None
        for run in found:
            if run.info.artifact_uri is not None:
                self.artifacts.know(run.info.run_id, run.info.artifact_uri)
        return [_tracked(run, names[run.info.experiment_id]) for run in found]

    def history(self, run_id: str, metric: str) -> list[tuple[int, float]]:
        """(step, value) by step; of a step logged twice, as after a resumption, the later value."""
        history = self._client.get_metric_history(run_id, tracker_name(metric))
        return sorted({m.step: as_logged(m.value) for m in sorted(history, key=lambda m: m.timestamp)}.items())

    def table(self, run_id: str, name: str) -> list[dict[str, Any]]:
        """The rows of a table that :meth:`log_table` sent."""
        return self.artifacts.table(run_id, name)

    def _experiment_id(self, name: str) -> str:
        if name not in self._experiments:
            found = self._client.get_experiment_by_name(name)
            self._experiments[name] = found.experiment_id if found is not None else self._create_experiment(name)
        return self._experiments[name]

    def _create_experiment(self, name: str) -> str:
        # A server decides for itself. For files MLflow's choice is the working directory, ours beside the database.
        location: str | None = None
        if self.address.startswith("sqlite:///"):
            root = Path(self.address.removeprefix("sqlite:///")).absolute().parent
            location = (root / "artifacts" / name).as_uri()
        with contextlib.suppress(TrackerError):  # unless the mirror of a sibling was faster
            return self._client.create_experiment(name, artifact_location=location)
        found = self._client.get_experiment_by_name(name)
        if found is None:
            raise TrackerError(f"MLflow at {self.address} neither finds nor makes an experiment named {name!r}")
        return found.experiment_id


def _tracked(run: Run, experiment: str) -> TrackedRun:
    return TrackedRun(
        run_id=run.info.run_id,
        experiment=experiment,
        status=run.info.status,
        start=run.info.start_time / 1000,
        tags=run.data.tags,
        params=run.data.params,
        metrics={name: as_logged(value) for name, value in run.data.metrics.items()},
    )


def _everything() -> int:
    from mlflow.entities import ViewType

    return ViewType.ALL


def main(arguments: Sequence[str]) -> int:
    from experiments.tracking import carry
    from experiments.tracking.named_runs import NoSuchRuns

    parser = argparse.ArgumentParser(prog="python -m experiments.track", description="Carry run folders to MLflow.")
    parser.add_argument("folders", nargs="+", type=Path, help="an experiment's run folder, or a folder above several")
    parser.add_argument("--follow", action="store_true", help="go on until standard input speaks or ends")
    options = parser.parse_args(arguments)
    try:
        if options.follow:
            os.nice(5)  # training comes first
            return 0 if carry.follow(options.folders[0], connect) else 1
        from experiments.sweep.send import send_sweeps

        return 0 if all([carry.sync(options.folders, answering), send_sweeps(options.folders, connect)]) else 1
    except (TrackerError, NoSuchRuns) as error:
        print(error, file=sys.stderr)
        return 2


def connect() -> Tracker:
    """The tracker in use."""
    return Tracker(tracking_address())


def answering() -> Tracker:
    """The tracker in use, asked once: where nobody answers, one sentence says so and not one for every folder.

    Raises:
        TrackerError: where nobody does.
    """
    tracker = connect()
    tracker.experiments()
    return tracker


if __name__ == "__main__":
    conceal_output()
    sys.exit(main(sys.argv[1:]))
