"""Real runs that end by a signal at a chosen place.

    test ──► {"words": […], "place": "reward", "step": 3} ──► forking ──fork──► python -m experiments.run …
         ◄── {"status": -9} ◄──────────────────────────────── waits ◄────────── killed

A run does what the command line does; nothing in it knows what will come. The signal is SIGKILL, after which nothing is
tidied up, or those that were asked for.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import IO, Any

from tests.integration.forking import Forks, forks, serve

PLACES: dict[str, tuple[str, str, int]] = {
    "rollout": ("contrastive_reasoning.rollout.engine:ContinuousDecode", "_record", 5),
    "reward": ("contrastive_reasoning.rewards:CalibratedReward", "__call__", 1),
    "head's step": ("contrastive_reasoning.rewards:CLIPOReward", "_learn", 1),
    "backward": ("lightning_modules.grpo:GRPO", "loss", 2),
    "after the optimizer's step": ("lightning_modules.grpo:GRPO", "report_step", 1),
    "logging": ("experiments.run_folder.logger:RunFolderLogger", "_open_file", 1),
    "validation": ("lightning_modules.grpo:GRPO", "validation_step", 1),
    "critic's step": ("lightning_modules.critic:CriticPretraining", "training_step", 1),
    "writing a checkpoint": ("lightning:Trainer", "save_checkpoint", 1),
    "checkpoint beside": ("experiments.stages.stage_checkpoint", "_replace", 1),
    "checkpoint in place": ("experiments.stages.stage_checkpoint", "seal", 1),
    "checkpoint sealed": ("experiments.stages.stage_checkpoint", "clear", 1),
    "last step done": ("experiments.stages.train", "save_whole", 1),
    "no result yet": ("experiments.stages.experiment", "write_result", 1),
}
"""Where a run can be killed: a class or module, its function, and which of its calls within a step is the last."""


def runs(overrides: list[str], log: Path) -> AbstractContextManager[Forks]:
    """Runs that are killed at ``place`` in ``step``, there by ``signals`` if given, or once ``file`` has ``lines``
    lines and ``seconds`` more have passed."""
    return forks(overrides, log, server=__name__)


def live(asked: dict[str, Any]) -> None:
    """The run, which may be struck."""
    import experiments.run

    if "place" in asked:
        strike_at(asked["place"], asked["step"], asked.get("signals", [signal.SIGKILL]))
    experiments.run.run()


def kill_from_outside(run: int, asked: dict[str, Any]) -> None:
    """Wait until the file has so many lines, and so many seconds more; at once where no file is named."""
    if "file" not in asked:
        return
    path = Path(asked["file"])
    while os.waitid(os.P_PID, run, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if path.exists() and path.read_bytes().count(b"\n") >= asked["lines"]:
            time.sleep(asked["seconds"])
            os.killpg(run, signal.SIGKILL)
            return
        time.sleep(0.005)


def strike_at(place: str, step: int, signals: list[int]) -> None:
    """Send this process the signals where a call of that place in ``step`` begins; 0: before the first."""
    from contrastive_reasoning.progress import steps_done
    from experiments.stages.stage_checkpoint import StageCheckpoint

    under_way = 0
    between = StageCheckpoint.on_train_batch_start

    @wraps(between)
    def counted(self: StageCheckpoint, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        nonlocal under_way
        between(self, trainer, pl_module, batch, batch_idx)
        under_way = steps_done(trainer, pl_module) + 1

    StageCheckpoint.on_train_batch_start = counted
    target, name, call = PLACES[place]
    module, _, kind = target.partition(":")
    owner = getattr(import_module(module), kind) if kind else import_module(module)
    lived = getattr(owner, name)
    calls = 0

    @wraps(lived)
    def struck(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        if under_way == step:
            calls += 1
            if calls == call:
                HALF_DONE.get(name, lambda *_: None)(lived, *args)
                for number in signals:
                    send(number)
        return lived(*args, **kwargs)

    setattr(owner, name, struck)


def send(number: int) -> None:
    """Send this process a signal, and give who listens time to let go of it: two that arrive at once are one."""
    listening = signal.getsignal(number)
    os.kill(os.getpid(), number)
    deadline = time.monotonic() + 5
    while signal.getsignal(number) is listening and time.monotonic() < deadline:
        time.sleep(0.001)


def half_a_checkpoint(save: Callable[..., None], trainer: Any, path: Path, **_: Any) -> None:
    save(trainer, path)
    os.truncate(path, path.stat().st_size // 2)


def half_a_line(opened: Callable[..., IO[str]], logger: Any) -> None:
    file = opened(logger)
    file.write('{"step": 3, "name": "train/rew')
    file.flush()


HALF_DONE: dict[str, Callable[..., None]] = {"save_checkpoint": half_a_checkpoint, "_open_file": half_a_line}
"""What is left where the function had begun to write."""


if __name__ == "__main__":
    serve(live, kill_from_outside)
