"""Loggers beside the run folder, each read back by its own library; nothing is sent anywhere."""

from __future__ import annotations

import csv
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import wandb
from lightning.pytorch.loggers import Logger
from lightning.pytorch.loggers.logger import DummyLogger
from matplotlib.figure import Figure
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from wandb.proto import wandb_internal_pb2

from callbacks.figures import log_with
from experiments.assemble import AssemblyError, with_values
from experiments.run_folder.logger import run_folder_of
from experiments.stages.experiment import stage_loggers
from tests.config_kit import composed

RUN = "llama_critic · reward.weight=0.25 · seed 0"
HEADER, PIECE, BLOCK = 7, 7, 32768


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("WANDB_API_KEY", raising=False)


def log(
    option: str,
    folder: Path,
    stage: str = "grpo",
    values: tuple[float, ...] = (0.25, 0.5),
    *,
    fails: BaseException | None = None,
) -> list[Logger]:
    """Logs a stage as a trainer and its callbacks do; the figure, table and page at the first step."""
    config = with_values(composed("experiment=llama_critic", f"logger={option}"), {"output_dir": str(folder)})
    plan: Any = SimpleNamespace(name=stage, folder=folder / stage, config={"policy": {"pretrained": "a"}})
    plan.folder.mkdir(exist_ok=True)
    with stage_loggers(config, plan, run=RUN) as loggers:
        if fails:
            raise fails
        trainer: Any = SimpleNamespace(loggers=loggers)
        log_with(trainer, "log_figure", "critic/goals", Figure(), 1)
        log_with(trainer, "log_table", "val/completions", [{"text": "3+4=7"}], 1)
        log_with(trainer, "log_page", "train/credit", "<p>", 1)
        for step, value in enumerate(values, start=1):
            for logger in loggers:
                logger.log_metrics({"val/verifier/accuracy": value}, step=step)
        for logger in loggers:
            logger.finalize("success")
        return loggers


def offline_records(folder: Path) -> Iterator[Any]:
    """Reads the records of all runs of Weights & Biases below a folder, the earliest run first.

    A file is a header and blocks of LevelDB's log: pieces with a checksum, a length and a type, which is 1 for a whole
    record, else 2 (first), 3 (middle) or 4 (last).
    """
    wandb.teardown()  # waits for the process that writes the files
    for path in sorted(folder.rglob("*.wandb"), key=lambda path: path.stat().st_mtime):
        content, at, record = path.read_bytes(), HEADER, b""
        while at + PIECE <= len(content):
            if BLOCK - at % BLOCK < PIECE:  # the rest of a block is empty
                at += BLOCK - at % BLOCK
                continue
            _, length, kind = struct.unpack_from("<IHB", content, at)
            record += content[at + PIECE : at + PIECE + length]
            at += PIECE + length
            if kind in (1, 4):
                parsed = wandb_internal_pb2.Record()  # pyright: ignore[reportAttributeAccessIssue]
                parsed.ParseFromString(record)
                yield parsed
                record = b""


def test_wandb_gets_metrics_figures_and_a_run_for_each_stage_with_its_end(tmp_path: Path) -> None:
    log("wandb", tmp_path, "critic", values=(0.125,))
    with pytest.raises(KeyboardInterrupt):
        log("wandb", tmp_path, "grpo", fails=KeyboardInterrupt())
    log("wandb", tmp_path, "grpo", values=(0.75,))  # resumed
    records = list(offline_records(tmp_path))
    runs = [record.run for record in records if record.HasField("run")]
    items = [item for record in records if record.HasField("history") for item in record.history.item]
    logged = {item.key or "/".join(item.nested_key): item.value_json for item in items}

    assert {(run.project, run.run_group) for run in runs} == {("llama_critic", RUN)}
    assert {run.display_name for run in runs} == {"critic", "grpo"}
    assert len({run.run_id for run in runs}) == 2  # the resumed stage continues its run
    assert [record.exit.exit_code for record in records if record.HasField("exit")] == [0, 1, 0]
    assert json.loads(logged["val/verifier/accuracy"]) == 0.75
    assert json.loads(logged["critic/goals/_type"]) == "images/separated"
    assert "val/completions" not in logged


def test_tensorboard_gets_metrics_and_figures_in_a_folder_for_each_training(tmp_path: Path) -> None:
    log("tensorboard", tmp_path)
    log("tensorboard", tmp_path, values=())  # resumed
    (tmp_path / "grpo" / "loggers.json").unlink()
    log("tensorboard", tmp_path, values=(0.75,))  # trained again, with other code
    folders = sorted((tmp_path / "tensorboard" / "llama_critic" / RUN).iterdir(), key=lambda path: path.stat().st_ctime)
    assert len(folders) == 2
    events = EventAccumulator(str(folders[0]))
    events.Reload()
    assert [(one.step, one.value) for one in events.Scalars("val/verifier/accuracy")] == [(1, 0.25), (2, 0.5)]
    assert {one.step for one in events.Images("critic/goals")} == {1}


def test_several_loggers_and_the_run_folder_get_the_same(tmp_path: Path) -> None:
    loggers = log("[csv,tensorboard]", tmp_path)
    with (tmp_path / "grpo" / "csv" / "version_0" / "metrics.csv").open() as file:
        assert [(row["step"], row["val/verifier/accuracy"]) for row in csv.DictReader(file)] == [
            ("1", "0.25"),
            ("2", "0.5"),
        ]
    assert run_folder_of(loggers).history() == {"val/verifier/accuracy": {1: 0.25, 2: 0.5}}
    assert (tmp_path / "tensorboard").is_dir()
    left = {path.relative_to(tmp_path / "grpo").parts[0] for path in (tmp_path / "grpo").rglob("*") if path.is_file()}
    assert left == {"csv", "figures", "loggers.json", "metrics.jsonl", "pages", "tables"}


class WithoutLogin(DummyLogger):
    """Raises when its run begins, as a logger of a service does."""

    def __init__(self, **settings: Any) -> None:
        super().__init__()

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        raise RuntimeError("no API key\nsee the documentation")


def test_logger_that_cannot_begin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning.pytorch.loggers.CSVLogger", WithoutLogin)
    with pytest.raises(AssemblyError, match=r"^logger\.also\.csv: no API key$"):
        log("csv", tmp_path)


def test_logger_without_its_package_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lightning.pytorch.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
    monkeypatch.setattr("lightning.fabric.loggers.tensorboard._TENSORBOARD_AVAILABLE", False)
    monkeypatch.setattr("lightning.fabric.loggers.tensorboard._TENSORBOARDX_AVAILABLE", False)
    with pytest.raises(AssemblyError, match=r"^logger\.also: .*tensorboard.*pip install"):
        log("tensorboard", tmp_path)
