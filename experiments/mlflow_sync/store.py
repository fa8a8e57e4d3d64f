"""MLflow's store: its address, its SQLite file, and its errors, each as one sentence with MLflow's own reason."""

from __future__ import annotations

import os
import sqlite3
from contextlib import nullcontext
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from experiments.system.files import lock
from experiments.system.secrets import hide_secrets, without_login
from experiments.system.terminal import first_line

if TYPE_CHECKING:
    from mlflow import MlflowClient

SETTINGS = {
    # No request is repeated: the first may have been carried out, and a run would then be there twice. The sync repeats
    # whole passes, each of which looks at what is there.
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "0",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
}
TIMEOUT = "MLFLOW_HTTP_REQUEST_TIMEOUT"
OURS = "CONTRASTIVE_REASONING_TIMEOUT"
"""Beside ``TIMEOUT``: its value is ours. A process that is started from here inherits both, and sets its own."""
SYNC_SECONDS, READER_SECONDS = 60, 10
"""How long the sync, for which nobody waits, and a command wait for an answer."""
UNFINISHED, JOURNAL = ".unfinished", "-journal"
"""Endings of the database while its tables are made, and of SQLite's file for an unfinished transaction."""


class TrackerError(RuntimeError):
    """MLflow does not answer, cannot use its address, or refuses a request."""


def tracking_address() -> str:
    """``MLFLOW_TRACKING_URI``, else the SQLite file ``mlruns/mlflow.db`` of the working directory."""
    if address := os.environ.get("MLFLOW_TRACKING_URI"):
        return address
    database = Path.cwd() / "mlruns" / "mlflow.db"
    # SQLAlchemy unquotes an address, but MLflow also makes the folder that the quoted address names: where something
    # would have to be quoted, the address is relative
    return "sqlite:///mlruns/mlflow.db" if set("%?#") & set(str(database)) else f"sqlite:///{database}"


def database_file(address: str) -> Path | None:
    """The SQLite file of an address; None where the store is none."""
    if not address.startswith("sqlite:"):
        return None
    from sqlalchemy import make_url

    name = make_url(address).database
    return None if not name or name.startswith((":memory:", "file:")) else Path(name).absolute()


def open_client(address: str, *, seconds: int) -> MlflowClient:
    """A client whose methods raise :class:`TrackerError`, as this does, for what the store or the network does.

    An answer is waited for ``seconds``, unless the environment sets how long.
    """
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    if TIMEOUT not in os.environ or os.environ.get(OURS) == os.environ[TIMEOUT]:
        os.environ[TIMEOUT] = os.environ[OURS] = str(seconds)
    # imported late: it takes seconds, and a sync process that is asked to stop at once must already be listening
    import mlflow

    shown = without_login(address)
    try:
        database = database_file(address)
        if database is not None:
            database.parent.mkdir(parents=True, exist_ok=True)
        # two processes that make the tables of a SQLite file at once both fail
        with nullcontext() if database is None else lock(database.with_suffix(".lock")):
            if database is not None:
                _make_tables(address, database.resolve())  # a link stays one
            client = _open(address)
    except Exception as error:  # of MLflow, the database, its driver, or the file system
        raise TrackerError(f"MLflow's store at {shown} cannot be opened ({_reason(error)})") from error
    return cast("MlflowClient", _Client(client, kind=mlflow.MlflowException, address=shown))


class _Client:
    """MLflow's client with errors of ours."""

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
    """Why something failed, in one line: the error of the system or the database below MLflow's, where there is one."""
    return hide_secrets(first_line(_system_error(error) or error))


def _system_error(error: BaseException) -> OSError | sqlite3.Error | None:
    """The innermost error of the operating system or of SQLite that led to ``error``."""
    chain, found = [error], None
    while (cause := chain[-1].__cause__ or chain[-1].__context__) and cause not in chain:
        chain.append(cause)
    for cause in chain:
        # requests derives its errors from OSError, with texts of four lines
        if isinstance(cause, OSError | sqlite3.Error) and not type(cause).__module__.startswith("requests"):
            found = cause
    return found


def _open(address: str) -> MlflowClient:
    import mlflow
    import sqlalchemy
    from sqlalchemy.exc import ArgumentError, NoSuchModuleError

    try:
        engine = sqlalchemy.create_engine(address)
    except (ArgumentError, NoSuchModuleError):  # no database: a server, or nothing that MLflow knows
        return mlflow.MlflowClient(tracking_uri=address)
    # once: MLflow tries ten times, with pauses of 100 seconds in all, to open a database that is not there
    sqlalchemy.inspect(engine)
    engine.dispose()
    return mlflow.MlflowClient(tracking_uri=address)


def _make_tables(address: str, database: Path) -> None:
    """Make the tables of a new SQLite file beside it, and give it its name once it has all of them.

    They take MLflow many steps, and a file whose maker was killed between two of them can never be opened again. The
    file's lock is held meanwhile.
    """
    from sqlalchemy import make_url

    if database.exists() and database.stat().st_size:
        return
    database.parent.mkdir(parents=True, exist_ok=True)
    unfinished = database.with_name(database.name + UNFINISHED)
    for left in (unfinished, unfinished.with_name(unfinished.name + JOURNAL)):  # by a maker that was killed
        left.unlink(missing_ok=True)
    _open(str(make_url(address).set(database=os.path.relpath(unfinished))))  # relative: see tracking_address
    if not (database.exists() and database.stat().st_size):  # MLflow's own programs do not take the lock
        unfinished.replace(database)
