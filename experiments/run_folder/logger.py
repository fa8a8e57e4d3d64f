"""The Lightning logger that writes a stage's folder: metrics to ``metrics.jsonl``; figures, tables and pages beside it.

It does not depend on MLflow: everything that MLflow shows can be created from the folder at any time.
"""

from __future__ import annotations

import json
import math
import os
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from experiments.run_folder.reader import METRICS_FILE, Metric, read_metrics
from experiments.system.files import partial_of, plain_path, put_in_place, sync_all, write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure


class RunFolderLogger(Logger):
    """Appends metrics to ``folder/metrics.jsonl`` and keeps figures, tables and pages by name and step.

    Hyperparameters are not logged: the stage writes its resolved ``config.yaml`` itself. Only rank zero writes.
    Raises ValueError for a name with a part that is not a plain folder name, so nothing is written outside the folder.
    """

    def __init__(self, *, folder: str | Path) -> None:
        super().__init__()
        self.folder = Path(folder)
        self._file: TextIO | None = None

    @property
    def name(self) -> str:
        return ""

    @property
    def version(self) -> str:
        return ""

    @property
    def save_dir(self) -> str:
        return str(self.folder)

    @rank_zero_only
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Appends one line per metric and flushes. Lightning's own ``epoch`` is left out: the step implies it."""
        now = round(time.time(), 3)
        lines = (Metric(step or 0, name, float(value), now) for name, value in metrics.items() if name != "epoch")
        file = self._open_file()
        file.write("".join(map(format_line, lines)))
        file.flush()

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Does nothing; see the class."""

    @rank_zero_only
    def log_figure(self, name: str, figure: Figure, step: int) -> None:
        """Saves a figure as ``figures/<name>/<step>.png``; the caller closes it."""
        path = self._path("figures", plain_path(name, what="figure"), f"{step}.png")
        partial = partial_of(path)
        figure.savefig(partial, format="png", bbox_inches="tight", dpi=150)
        put_in_place(partial, path)

    @rank_zero_only
    def log_table(self, name: str, rows: Sequence[Mapping[str, Any]], step: int) -> None:
        """Saves rows as ``tables/<name>/<step>.json``, a list of objects; values of non-JSON types become strings."""
        path = self._path("tables", plain_path(name, what="table"), f"{step}.json")
        write_text(path, json.dumps([dict(row) for row in rows], default=str, ensure_ascii=False, indent=1) + "\n")

    @rank_zero_only
    def log_page(self, name: str, html: str, step: int) -> None:
        """Saves a page as ``pages/<name>/<step>.html``."""
        write_text(self._path("pages", plain_path(name, what="page"), f"{step}.html"), html)

    @rank_zero_only
    def bring_to_disk(self) -> None:
        """Flushes the metrics logged so far to disk; figures, tables and pages are flushed when they are written."""
        sync_all(self.folder / METRICS_FILE)

    def history(self) -> dict[str, dict[int, float]]:
        """Returns all metrics logged so far, including those before a resumption: name → step → value."""
        found: dict[str, dict[int, float]] = {}
        for metric in read_metrics(self.folder):
            found.setdefault(metric.name, {})[metric.step] = metric.value
        return found

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _open_file(self) -> TextIO:
        if self._file is None:
            path = self._path(METRICS_FILE)
            remove_torn_line(path)
            self._file = path.open("a", encoding="utf-8")
        return self._file

    def _path(self, *parts: str) -> Path:
        path = self.folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path


def run_folder_of(loggers: Sequence[Logger]) -> RunFolderLogger:
    return next(logger for logger in loggers if isinstance(logger, RunFolderLogger))


def format_line(metric: Metric) -> str:
    """Formats a metric as one line. JSON has no NaN and no infinity: they become the strings "nan", "inf", "-inf"."""
    value = metric.value if math.isfinite(metric.value) else str(metric.value)
    return json.dumps({**metric._asdict(), "value": value}) + "\n"


def remove_torn_line(path: Path) -> None:
    """Removes what follows the last newline, so that appending starts on a new line."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        content = file.read()
        if not content.endswith(b"\n"):
            file.truncate(content.rfind(b"\n") + 1)
            os.fsync(file.fileno())
