"""Files that the logger writes into a run folder, and the functions that read them."""

from __future__ import annotations

import json
import math
import time
from pathlib import Path

import lightning as L
import pytest
import torch
from matplotlib.figure import Figure
from torch.utils.data import DataLoader

from experiments.run_folder.logger import RunFolderLogger, format_line
from experiments.run_folder.reader import (
    METRICS_FILE,
    Metric,
    complete_lines,
    last_values,
    parse_line,
    read_config,
    read_metrics,
)
from tests.quiet import quiet_trainer


def values(folder: Path) -> list[tuple[int, str, float]]:
    return [(metric.step, metric.name, metric.value) for metric in read_metrics(folder)]


def test_log_metrics_writes_a_line_per_metric_at_once(tmp_path: Path) -> None:
    assert (read_metrics(tmp_path), last_values(tmp_path)) == ([], {})
    logger = RunFolderLogger(folder=tmp_path / "new" / "stage")
    logger.log_metrics({"train/loss": 0.5, "epoch": 0}, step=3)
    assert last_values(tmp_path / "new" / "stage") == {"train/loss": 0.5}
    (line,) = (tmp_path / "new" / "stage" / METRICS_FILE).read_text().splitlines()
    assert json.loads(line) == {
        "step": 3,
        "name": "train/loss",
        "value": 0.5,
        "time": pytest.approx(time.time(), abs=60),
    }


def test_non_finite_values_are_valid_json_and_round_trip() -> None:
    for value in (math.inf, -math.inf, 1e-300, 0.1):
        metric = Metric(1, "a", value, 2.0)
        assert parse_line(format_line(metric)) == metric
    line = format_line(Metric(1, "a", math.nan, 2.0))
    assert json.loads(line, parse_constant=lambda name: f"not JSON: {name}")["value"] == "nan"
    nan = parse_line(line)
    assert nan is not None
    assert math.isnan(nan.value)


def test_incomplete_last_line_is_skipped_and_later_removed(tmp_path: Path) -> None:
    RunFolderLogger(folder=tmp_path).log_metrics({"a": 1.0}, step=0)
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write('{"step": 1, "name": "a", "val')
    assert values(tmp_path) == [(0, "a", 1.0)]
    RunFolderLogger(folder=tmp_path).log_metrics({"a": 2.0}, step=1)
    assert values(tmp_path) == [(0, "a", 1.0), (1, "a", 2.0)]
    assert len((tmp_path / METRICS_FILE).read_text().splitlines()) == 2


def test_read_metrics_returns_last_value_of_repeated_steps(tmp_path: Path) -> None:
    killed = RunFolderLogger(folder=tmp_path)
    for step in range(4):
        killed.log_metrics({"a": float(step)}, step=step)
    resumed = RunFolderLogger(folder=tmp_path)
    for step in (2, 3, 4):
        resumed.log_metrics({"a": 10.0 * step}, step=step)
    assert values(tmp_path) == [(0, "a", 0.0), (1, "a", 1.0), (2, "a", 20.0), (3, "a", 30.0), (4, "a", 40.0)]
    assert last_values(tmp_path) == {"a": 40.0}


def test_complete_lines_continues_from_byte_offset(tmp_path: Path) -> None:
    logger = RunFolderLogger(folder=tmp_path)
    logger.log_metrics({"a": 1.0, "b": 2.0}, step=0)
    *_, (_, end) = complete_lines(tmp_path)
    logger.log_metrics({"a": 3.0}, step=1)
    assert [metric.value for metric, _ in complete_lines(tmp_path, start=end)] == [3.0]


def test_figures_and_tables_are_written_by_name_and_step(tmp_path: Path) -> None:
    logger = RunFolderLogger(folder=tmp_path)
    logger.log_figure("critic/similarity", Figure(), step=20)
    logger.log_table("val/completions", [{"text": "7·6=42 ✓", "ok": True, "steps": (1, 2)}], step=20)
    assert (tmp_path / "figures/critic/similarity/20.png").read_bytes().startswith(b"\x89PNG")
    table = (tmp_path / "tables/val/completions/20.json").read_text()
    assert json.loads(table) == [{"text": "7·6=42 ✓", "ok": True, "steps": [1, 2]}]
    assert "✓" in table
    assert not [path for path in tmp_path.rglob("*") if path.name.startswith(".") or path.suffix == ".partial"]


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "val/../../x", "val//x", "a\\x", "a\x00"])
def test_unsafe_names_are_rejected_and_nothing_is_written(tmp_path: Path, name: str) -> None:
    logger = RunFolderLogger(folder=tmp_path / "run")
    with pytest.raises(ValueError, match=r"^table='"):
        logger.log_table(name, [{"a": 1}], step=0)
    with pytest.raises(ValueError, match=r"^figure='"):
        logger.log_figure(name, Figure(), step=0)
    assert not list(tmp_path.rglob("*.*"))


class Counting(L.LightningModule):
    """Logs its own x-axis, like modules with several optimizer steps per batch."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1))

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        self.log_dict({"train/loss": float(batch_idx), "step": 100.0 + batch_idx}, batch_size=1)
        return self.weight.sum()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def test_lightning_trainer_logs_through_logger(tmp_path: Path) -> None:
    trainer = quiet_trainer(max_steps=3, logger=RunFolderLogger(folder=tmp_path))
    trainer.fit(Counting(), DataLoader(torch.ones(3, 1)))  # type: ignore[arg-type]
    assert values(tmp_path) == [(100, "train/loss", 0.0), (101, "train/loss", 1.0), (102, "train/loss", 2.0)]
    assert sorted(path.name for path in tmp_path.iterdir()) == [METRICS_FILE]


def test_read_config_is_cached_until_file_changes(tmp_path: Path) -> None:
    assert read_config(tmp_path) == {}
    for name in ("first", "second"):
        (tmp_path / "config.yaml").write_text(f"name: {name}\nsame: ${{name}}\n")
        assert read_config(tmp_path) == {"name": name, "same": name}
        assert read_config(tmp_path) is read_config(tmp_path)
