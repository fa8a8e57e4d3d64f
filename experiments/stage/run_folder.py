"""The Lightning logger that writes the run folder: numbers to ``metrics.jsonl``, pictures and tables beside it.

The folder is the truth: nothing here knows a tracker, and what a tracker shows can be made from the folder at any time.
"""

from __future__ import annotations

import json
import time
from argparse import Namespace
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from experiments.system.files import partial_of, put_in_place, sync_all, write_text
from experiments.system.folder_names import plain_parts
from experiments.tracking.metrics_file import (
    METRICS_FILE,
    Metric,
    format_line,
    last_values,
    read_metrics,
    remove_torn_line,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["METRICS_FILE", "Metric", "RunFolderLogger", "last_values", "read_metrics"]


class RunFolderLogger(Logger):
    """Appends metrics to ``folder/metrics.jsonl`` and keeps figures, tables and pages by name and step.

    Hyperparameters are not its matter: the stage writes its resolved ``config.yaml`` itself. Only rank zero writes.
    A name whose parts are no plain names is refused: nothing is written outside of the folder.
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
        """Append one line a metric and flush. Lightning's own ``epoch`` is left out: the step says it."""
        now = round(time.time(), 3)
        lines = (Metric(step or 0, name, float(value), now) for name, value in metrics.items() if name != "epoch")
        file = self._opened()
        file.write("".join(map(format_line, lines)))
        file.flush()

    @rank_zero_only
    def log_hyperparams(self, params: dict[str, Any] | Namespace, *args: Any, **kwargs: Any) -> None:
        """Nothing: see the class."""

    @rank_zero_only
    def log_figure(self, name: str, figure: Figure, step: int) -> None:
        """Save a picture as ``figures/<name>/<step>.png``; the caller closes it."""
        path = self._path("figures", plain_parts(name, what="figure"), f"{step}.png")
        partial = partial_of(path)
        figure.savefig(partial, format="png", bbox_inches="tight", dpi=150)
        put_in_place(partial, path)

    @rank_zero_only
    def log_table(self, name: str, rows: Sequence[Mapping[str, Any]], step: int) -> None:
        """Save rows as ``tables/<name>/<step>.json``, a list of objects; what JSON does not know is written as text."""
        path = self._path("tables", plain_parts(name, what="table"), f"{step}.json")
        write_text(path, json.dumps([dict(row) for row in rows], default=str, ensure_ascii=False, indent=1) + "\n")

    @rank_zero_only
    def log_page(self, name: str, html: str, step: int) -> None:
        """Save a page as ``pages/<name>/<step>.html``."""
        write_text(self._path("pages", plain_parts(name, what="page"), f"{step}.html"), html)

    @rank_zero_only
    def bring_to_disk(self) -> None:
        """Have the numbers on the disk that were logged until now; pictures, tables and pages are there at once."""
        sync_all(self.folder / METRICS_FILE)

    def history(self) -> dict[str, dict[int, float]]:
        """All that was logged, before a resumption too: name → step → value."""
        found: dict[str, dict[int, float]] = {}
        for metric in read_metrics(self.folder):
            found.setdefault(metric.name, {})[metric.step] = metric.value
        return found

    @rank_zero_only
    def finalize(self, status: str) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def _opened(self) -> TextIO:
        if self._file is None:
            path = self._path(METRICS_FILE)
            remove_torn_line(path)
            self._file = path.open("a", encoding="utf-8")
        return self._file

    def _path(self, *parts: str) -> Path:
        path = self.folder.joinpath(*parts)
        path.parent.mkdir(parents=True, exist_ok=True)
        return path
