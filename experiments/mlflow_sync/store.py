"""MLflow's store: its address, its SQLite file, and its errors, each as one sentence with the original reason."""

from __future__ import annotations

import os
import sqlite3
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from experiments.system.files import lock
from experiments.system.secrets import hide_secrets, without_login
from experiments.system.terminal import first_line

if TYPE_CHECKING:
    from mlflow import MlflowClient

SETTINGS = {
    # No retries: the first request may have succeeded, and a retry would create a run twice. The sync repeats whole
    # passes instead, each of which checks what exists.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
OURS = "CONTRASTIVE_REASONING_TIMEOUT"
"""Has the value of ``TIMEOUT`` if this module set that; a child process inherits both and may set its own timeout."""
SYNC_SECONDS, READER_SECONDS = 60, 10
"""Request timeouts of the background sync and of an interactive command."""
UNFINISHED, JOURNAL = ".unfinished", "-journal"
"""Suffixes of the database during the creation of its tables, and of SQLite's file for an unfinished transaction."""


class TrackerError(RuntimeError):
    """MLflow does not respond, cannot use its address, or rejects a request."""


def tracking_address() -> str:
    """Returns ``MLFLOW_TRACKING_URI``, else the SQLite file ``mlruns/mlflow.db`` in the working directory."""
    if address := os.environ.get("MLFLOW_TRACKING_URI"):
        return address
    database = Path.cwd() / "mlruns" / "mlflow.db"
    # SQLAlchemy unquotes an address, but MLflow also creates the folder that the quoted address names. So the address
    # is relative if the path has a character that needs quoting.
    return "sqlite:///mlruns/mlflow.db" if set("%?#") & set(str(database)) else f"sqlite:///{database}"


def database_file(address: str) -> Path | None:
    """Returns the SQLite file of an address; None if the store is not a SQLite file."""
    if not address.startswith("sqlite:"):
        return None
    from sqlalchemy import make_url

    name = make_url(address).database
    return None if not name or name.startswith((":memory:", "file:")) else Path(name).absolute()


def open_client(address: str, *, seconds: int) -> MlflowClient:
    """Returns a client whose methods raise :class:`TrackerError` for errors of the store or the network.

    Raises TrackerError if the store cannot be opened. A request times out after ``seconds``, unless the environment
    sets ``MLFLOW_HTTP_REQUEST_TIMEOUT``.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if TIMEOUT not in os.environ or os.environ.get(OURS) == os.environ[TIMEOUT]:
        os.environ[TIMEOUT] = os.environ[OURS] = str(seconds)
    # imported late: the import takes seconds, and a sync process must react to a stop request before that;
    # and after SETTINGS, as MLflow sets up its logging at import
    import mlflow

    shown = without_login(address)
    try:
        if (database := database_file(address)) is None:
            client = _open(address)
        else:
            database.parent.mkdir(parents=True, exist_ok=True)
            # two processes that create the tables of a SQLite file at the same time both fail
            with lock(database.with_suffix(".lock")):
                _make_tables(address, database.resolve())  # resolved, so that a symbolic link is not replaced
                client = _open(address)
    except Exception as error:  # from MLflow, the database, its driver, or the file system
        raise TrackerError(f"MLflow's store at {shown} cannot be opened ({_reason(error)})") from error
    return cast("MlflowClient", _Client(client, kind=mlflow.MlflowException, address=shown))


class _Client:
    """MLflow's client, which raises TrackerError instead of MlflowException."""

    def __init__(self, client: Any, *, kind: type[Exception], address: str) -> None:
        self._client = client
        self._kind = kind
        self._address = address

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        @wraps(method)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except self._kind as error:
                if isinstance(_system_error(error), OSError):
                    raise TrackerError(f"MLflow at {self._address} does not answer ({_reason(error)})") from error
                raise TrackerError(f"MLflow at {self._address}: {_reason(error)}") from error

        return call


def _reason(error: BaseException) -> str:
    """Returns one line: the underlying error of the system or SQLite if there is one, else ``error`` itself."""
    return hide_secrets(first_line(_system_error(error) or error))


def _system_error(error: BaseException) -> OSError | sqlite3.Error | None:
    """Returns the innermost error of the operating system or of SQLite that led to ``error``."""
    chain, found = [error], None
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and cause not in chain:
        chain.append(cause)
    for cause in chain:
        # the errors of requests derive from OSError, with messages of four lines
        if isinstance(cause, OSError | sqlite3.Error) and not type(cause).__module__.startswith("requests"):
            found = cause
    return found


def _open(address: str) -> MlflowClient:
    import mlflow
    import sqlalchemy
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        engine = sqlalchemy.create_engine(address)
    except (ArgumentError, NoSuchModuleError):  # not a database: a server, or an address that MLflow does not support
        return mlflow.MlflowClient(tracking_uri=address)
    # try once here: MLflow tries ten times, with pauses of 100 seconds in all, to open a missing database
    sqlalchemy.inspect(engine)
    engine.dispose()
    return mlflow.MlflowClient(tracking_uri=address)


def _make_tables(address: str, database: Path) -> None:
    """Creates the tables of a new SQLite file under a temporary name, and renames it once all tables exist.

    MLflow creates them in many steps. If it is killed between two of them, the file can never be opened again. The
    caller holds the file's lock.
    """
    from sqlalchemy import make_url

    if database.exists() and database.stat().st_size:
        return
    database.parent.mkdir(parents=True, exist_ok=True)  # of the target of a symbolic link
    unfinished = database.with_name(database.name + UNFINISHED)
    for left in (unfinished, unfinished.with_name(unfinished.name + JOURNAL)):  # from a process that was killed
        left.unlink(missing_ok=True)
    _open(str(make_url(address).set(database=os.path.relpath(unfinished))))  # relative: see tracking_address
    if not (database.exists() and database.stat().st_size):  # MLflow's own programs ignore the lock
        unfinished.replace(database)
