"""The files that a tracker keeps for its runs, read back: also where its database was copied from another machine.

A database of ours names its files by where they lay when a run was made. Where that folder is not there, they are
looked for beside the database, where a copy of the whole of ``mlruns/`` has them:

    mlruns/mlflow.db
    mlruns/artifacts/<experiment>/<run id>/artifacts/…
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlparse

DATABASE = "sqlite:///"
ENDING = 3
"""Parts of a run's folder below ``artifacts/``: experiment, run, ``artifacts``."""


class Artifacts:
    """Reads by run id and path; ``client`` is MLflow's, ``address`` the tracker's."""

    def __init__(self, *, client: Any, address: str) -> None:
        self._client = client
        self._beside: Path | None = None
        if address.startswith(DATABASE):
            self._beside = Path(address.removeprefix(DATABASE)).absolute().parent / "artifacts"
        self._folders: dict[str, Path | None] = {}

    def know(self, run_id: str, address: str) -> None:
        """Where a run's files lie, as far as that was told with other news of it: nobody has to ask again."""
        self._folders[run_id] = self._located(address)

    def files(self, run_id: str, folder: str = "") -> list[str]:
        """Paths of all files of a run in ``folder`` and below, sorted; none where there is no such folder."""
        local = self._folder(run_id)
        if local is None:
            return sorted(self._listed(run_id, folder))
        return sorted(p.relative_to(local).as_posix() for p in (local / folder).rglob("*") if p.is_file())

    def read(self, run_id: str, path: str) -> bytes:
        """The content of a file.

        Raises:
            OSError, TrackerError: where there is none.
        """
        local = self._folder(run_id)
        if local is not None:
            return (local / path).read_bytes()
        with tempfile.TemporaryDirectory() as folder:
            return Path(self._client.download_artifacts(run_id, path, folder)).read_bytes()

    def table(self, run_id: str, name: str) -> list[dict[str, Any]]:
        """The rows of a table that ``Tracker.log_table`` sent."""
        content = json.loads(self.read(run_id, f"tables/{name}.json"))
        return [dict(zip(content["columns"], row, strict=True)) for row in content["data"]]

    def _folder(self, run_id: str) -> Path | None:
        """Where a run's files lie on this machine; None where a server has them."""
        if run_id not in self._folders:
            self._folders[run_id] = self._located(self._client.get_run(run_id).info.artifact_uri)
        return self._folders[run_id]

    def _located(self, address: str) -> Path | None:
        parsed = urlparse(address)
        if parsed.scheme not in ("", "file"):
            return None
        folder = Path(unquote(parsed.path))
        if folder.is_dir() or self._beside is None:
            return folder
        return self._beside.joinpath(*folder.parts[-ENDING:])

    def _listed(self, run_id: str, folder: str) -> Iterator[str]:
        for entry in self._client.list_artifacts(run_id, folder or None):
            if entry.is_dir:
                yield from self._listed(run_id, entry.path)
            else:
                yield entry.path
