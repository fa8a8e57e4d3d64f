"""Checkpoints of a real Trainer: which are kept, which is best, full disks, and runs that are stopped or resumed."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import lightning as L
import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from experiments.run_folder.logger import RunFolderLogger
from experiments.run_folder.reader import read_metrics
from experiments.stages.checkpoints import CheckpointError, kept_checkpoints, newest_sound, path_of, seal
from experiments.stages.stage_checkpoint import Interrupted, StageCheckpoint, StopRequest
from tests.hostile.trap import Trap
from tests.quiet import quiet_trainer


class Line(L.LightningModule):
    """Logs the validation scores of a mapping from step to score."""

    def __init__(self, scores: Mapping[int, float] | None = None, width: int = 4, length: int = 8) -> None:
        super().__init__()
        self.length = length
        self.weight = nn.Parameter(torch.ones(width))
        self.scores = scores or {}

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        self.log("step", float(self.global_step + 1))
        self.log("train/number", batch.mean())
        return (self.weight * batch.mean()).sum()

    def validation_step(self, batch: Tensor, batch_idx: int) -> None:
        if self.global_step in self.scores:
            self.log("val/score", self.scores[self.global_step], batch_size=1)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.1)


VALIDATION = torch.zeros(1, 1)


class Numbers:
    """Yields the numbers from the module's current step on. Resumable, like the product's own loaders."""

    def __init__(self, module: Line) -> None:
        self.module = module

    def __len__(self) -> int:
        return self.module.length

    def __iter__(self) -> Iterator[Tensor]:
        return (torch.tensor([float(number)]) for number in range(self.module.global_step, len(self)))

    def state_dict(self) -> dict[str, int]:
        return {}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Does nothing."""


class Ask(L.Callback):
    """Sends a signal to this process during step ``at``."""

    def __init__(self, at: int, number: int = signal.SIGTERM) -> None:
        self.at = at
        self.number = number

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.at - 1:
            os.kill(os.getpid(), self.number)


def saving(folder: Path, stop: StopRequest | None = None, **changes: Any) -> StageCheckpoint:
    settings: dict[str, Any] = {"every": 1, "keep": 2, "best": {"val/score": "max"}}
    return StageCheckpoint(folder=folder, stop=stop or StopRequest(), **settings | changes)


def fit(
    module: Line,
    checkpoint: StageCheckpoint,
    *callbacks: L.Callback,
    resume: Path | None = None,
    logger: Any = False,
    validation: Any = VALIDATION,
) -> L.Trainer:
    often: dict[str, Any] = {"val_check_interval": 2, "check_val_every_n_epoch": None}
    trainer = quiet_trainer(callbacks=[checkpoint, *callbacks], logger=logger, **often)
    train: Any = Numbers(module)
    with checkpoint.stop.listening():
        trainer.fit(module, train, DataLoader(validation), ckpt_path=resume, weights_only=True)
    return trainer


def steps(folder: Path) -> list[int]:
    return [one.step for one in kept_checkpoints(folder)]


@pytest.mark.parametrize(
    ("scores", "settings", "expected"),
    [
        pytest.param({2: 0.3, 4: 0.5, 6: 0.4, 8: 0.5}, {}, [4, 7, 8], id="first of equal scores"),
        pytest.param(
            {2: 0.3, 4: float("nan"), 6: 0.2, 8: 0.25}, {"keep": 1, "best": {"val/score": "min"}}, [6, 8], id="min"
        ),
        pytest.param({2: 0.3, 4: 0.2}, {"every": 3, "keep": 1}, [2, 6], id="best between saved steps"),
        pytest.param({2: 0.3}, {"best": None}, [7, 8], id="no best"),
        pytest.param({2: 0.3}, {"best": {"val/absent": "max"}}, [7, 8], id="metric not logged"),
    ],
)
def test_newest_and_best_checkpoints_are_kept(
    tmp_path: Path, scores: dict[int, float], settings: dict[str, Any], expected: list[int]
) -> None:
    fit(Line(scores), saving(tmp_path, **settings))
    assert steps(tmp_path) == expected
    assert {path.suffix for path in tmp_path.iterdir()} == {".ckpt", ".seal"}


@pytest.mark.parametrize(
    ("every", "step", "length"),
    [
        pytest.param(1, 3, 8, id="ordinary step"),
        pytest.param(1, 4, 8, id="validated"),
        pytest.param(3, 4, 8, id="saved as best only"),
        pytest.param(1, 7, 8, id="before the last"),
        pytest.param(1, 6, 7, id="validated before the last"),
        pytest.param(1, 8, 8, id="the last"),
    ],
)
def test_run_resumed_from_any_checkpoint_equals_uninterrupted_run(
    tmp_path: Path, every: int, step: int, length: int
) -> None:
    """This includes checkpoints saved at a validation. The final weights are bitwise equal."""
    whole, resumed = Line({2: 0.3, 4: 0.4}, length=length), Line(length=length)
    fit(whole, saving(tmp_path, every=every, keep=8))
    trainer = fit(resumed, saving(tmp_path / "on"), resume=path_of(tmp_path, step))
    assert trainer.global_step == length
    assert torch.equal(resumed.weight, whole.weight)


def test_resume_keeps_best_checkpoint_of_earlier_run(tmp_path: Path) -> None:
    stop = StopRequest()
    with pytest.raises(Interrupted):
        fit(Line({2: 0.9}), saving(tmp_path, stop), Ask(5))
    fit(Line({6: 0.8, 8: 0.7}), saving(tmp_path, keep=1), resume=newest_sound(tmp_path)[0])
    assert steps(tmp_path) == [2, 8]


@pytest.fixture
def file_limit() -> Iterator[Callable[[int], None]]:
    """Returns a function that limits file sizes of this process in bytes, so that writing fails as on a full disk."""
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda most: resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_full_disk_raises_and_keeps_previous_checkpoint(tmp_path: Path, file_limit: Callable[[int], None]) -> None:
    class Fill(L.Callback):
        def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
            if trainer.global_step == 2:
                file_limit(20_000)

    with pytest.raises(CheckpointError, match=r"step=000003\.ckpt.*step=000002\.ckpt.*intact"):
        fit(Line(width=20_000), saving(tmp_path), Fill())
    assert newest_sound(tmp_path) == (path_of(tmp_path, 2), [])
    assert steps(tmp_path) == [1, 2]
    assert not list(tmp_path.glob("*.new"))


class Killed(BaseException):
    """Stands for SIGKILL: no cleanup code handles it."""


class Kill(L.Callback):
    """Raises Killed when the step after ``at`` begins, after the checkpoint callback."""

    def __init__(self, at: int) -> None:
        self.at = at

    def on_train_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        if trainer.global_step == self.at:
            raise Killed


@pytest.mark.parametrize("at", [3, 4], ids=["between validations", "after one"])
def test_metrics_of_a_step_are_on_disk_before_its_checkpoint(tmp_path: Path, at: int) -> None:
    scores = {step: step / 10 for step in range(0, 9, 2)}
    fit(Line(scores), saving(tmp_path / "kept whole"), logger=RunFolderLogger(folder=tmp_path / "whole"))
    with pytest.raises(Killed):
        fit(Line(scores), saving(tmp_path / "kept"), Kill(at), logger=RunFolderLogger(folder=tmp_path / "killed"))
    last, _ = newest_sound(tmp_path / "kept")
    assert last == path_of(tmp_path / "kept", at)
    fit(Line(scores), saving(tmp_path / "kept"), resume=last, logger=RunFolderLogger(folder=tmp_path / "killed"))
    whole, killed = ([tuple(m)[:3] for m in read_metrics(tmp_path / name)] for name in ("whole", "killed"))
    assert killed == whole
    assert {name for _, name, _ in whole} == {"train/number", "val/score"}


def test_checkpoint_with_pickled_code_is_rejected_and_not_executed(tmp_path: Path) -> None:
    with pytest.raises(Interrupted):
        fit(Line(), saving(tmp_path, stop := StopRequest()), Ask(2))
    assert stop.signal_name == "SIGTERM"
    path, canary = path_of(tmp_path, 2), tmp_path / "canary"
    state = torch.load(path, weights_only=True)
    torch.save(state | {"trap": Trap(canary)}, path)
    seal(path, step=2, metric=None)
    with pytest.raises(UnpicklingError, match=r"weights_only|Weights only"):
        fit(Line(), saving(tmp_path), resume=newest_sound(tmp_path)[0])
    assert not canary.exists()
    torch.load(path, weights_only=False)
    assert canary.exists(), "the trap works"


def test_validation_without_batches_does_not_shift_step_count(tmp_path: Path) -> None:
    fit(Line(), saving(tmp_path / "whole", keep=8), validation=[])
    fit(Line(), saving(tmp_path / "on", keep=8), resume=path_of(tmp_path / "whole", 4), validation=[])
    for step in (5, 7):
        whole, resumed = (
            torch.load(path_of(tmp_path / name, step), weights_only=True)["loops"]["fit_loop"]["epoch_loop.state_dict"]
            for name in ("whole", "on")
        )
        assert whole == resumed == {"_batches_that_stepped": step}


def test_stage_checkpoint_must_be_first_callback(tmp_path: Path) -> None:
    trainer = L.Trainer(accelerator="cpu", callbacks=[Ask(9), saving(tmp_path)], logger=False, max_epochs=1)
    with pytest.raises(RuntimeError, match=r"StageCheckpoint.*Ask"):
        trainer.fit(module := Line(), Numbers(module))  # pyright: ignore


def test_checkpoint_is_not_written_through_temporary_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "full"))  # does not exist, so that writing to it fails
    fit(Line(length=2), saving(tmp_path / "checkpoints"))
    assert steps(tmp_path / "checkpoints") == [1, 2]


@contextmanager
def unwritable(folder: Path) -> Iterator[None]:
    """Makes the folder read-only within the context. The superuser becomes user 65534, nobody, for that time."""
    above = [path for path in folder.parents if path.stat().st_uid == os.geteuid()]
    modes, user = {path: path.stat().st_mode for path in (folder, *above)}, os.geteuid()
    for path, mode in modes.items():
        path.chmod(0o555 if path == folder else mode | 0o055)
    if user == 0:
        os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(user)
        for path, mode in modes.items():
            path.chmod(mode)


def test_unwritable_folder_error_includes_system_reason(tmp_path: Path) -> None:
    (folder := tmp_path / "checkpoints").mkdir()
    named = pytest.raises(CheckpointError, match=r"step=000001\.ckpt.*Permission denied")
    with unwritable(folder), named:
        fit(Line(length=2), saving(folder))
