"""Real runs that a signal ends at a chosen place.

    test ──► {"words": […], "place": "reward", "step": 3} ──► forking ──fork──► python -m experiments.run …
         ◄── {"status": -9} ◄──────────────────────────────── waits ◄────────── killed

A run does exactly what the command line does. The signal is SIGKILL, after which no clean-up runs, unless the request
has other ``signals``.
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

from tests.forking import Forks, forks, serve

PLACES: dict[str, tuple[str, str, int]] = {
    "rollout": ("contrastive_reasoning.rollout.continuous:ContinuousDecode", "_record", 5),
    "reward": ("contrastive_reasoning.rewards:CalibratedReward", "__call__", 1),
    "head's step": ("contrastive_reasoning.rewards:CLIPOReward", "_learn", 1),
    "outcomes' step": ("callbacks.outcome_critic:OutcomeUpdates", "loss_of", 2),
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
"""Where a run can be killed: a class or module, its function, and the number of the call within a step."""


def runs(overrides: list[str], log: Path) -> AbstractContextManager[Forks]:
    """Runs that are killed at ``place`` in ``step`` (there by ``signals`` if given), or ``seconds`` after ``file`` has
    ``lines`` lines."""
    return forks(overrides, log, server=__name__)


def execute(request: dict[str, Any]) -> None:
    """Execute the run, with signals at a place if the request has one."""
    import experiments.run

    if "place" in request:
        send_signals_at(request["place"], request["step"], request.get("signals", [signal.SIGKILL]))
    experiments.run.run()


def kill_from_outside(run: int, request: dict[str, Any]) -> None:
    """Kill the run ``seconds`` after the file has ``lines`` lines. Return at once if the request has no file."""
    if "file" not in request:
        return
    path = Path(request["file"])
    while os.waitid(os.P_PID, run, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if path.exists() and path.read_bytes().count(b"\n") >= request["lines"]:
            time.sleep(request["seconds"])
            os.killpg(run, signal.SIGKILL)
            return
        time.sleep(0.005)


def send_signals_at(place: str, step: int, signals: list[int]) -> None:
    """Send this process the signals when the chosen call in ``step`` begins. Step 0 is before the first step."""
    from contrastive_reasoning.progress import steps_done
    from experiments.stages.stage_checkpoint import StageCheckpoint

    current_step = 0
    original_start = StageCheckpoint.on_train_batch_start

    @wraps(original_start)
    def counted(self: StageCheckpoint, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        nonlocal current_step
        original_start(self, trainer, pl_module, batch, batch_idx)
        current_step = steps_done(trainer, pl_module) + 1

    StageCheckpoint.on_train_batch_start = counted
    target, name, call = PLACES[place]
    module, _, kind = target.partition(":")
    owner = getattr(import_module(module), kind) if kind else import_module(module)
    original = getattr(owner, name)
    calls = 0

    @wraps(original)
    def interrupted(*args: Any, **kwargs: Any) -> Any:
        nonlocal calls
        if current_step == step:
            calls += 1
            if calls == call:
                HALF_DONE.get(name, lambda *_: None)(original, *args)
                for number in signals:
                    send(number)
        return original(*args, **kwargs)

    setattr(owner, name, interrupted)


def send(number: int) -> None:
    """Send this process a signal and wait until its handler changes: two signals at once would count as one."""
    listening = signal.getsignal(number)
    os.kill(os.getpid(), number)
    deadline = time.monotonic() + 5
    while signal.getsignal(number) is listening and time.monotonic() < deadline:
        time.sleep(0.001)


def half_a_checkpoint(save: Callable[..., None], trainer: Any, path: Path, **_: Any) -> None:
    save(trainer, path)
    os.truncate(path, path.stat().st_size // 2)


def half_a_line(open_file: Callable[..., IO[str]], logger: Any) -> None:
    file = open_file(logger)
    file.write('{"step": 3, "name": "train/rew')
    file.flush()


HALF_DONE: dict[str, Callable[..., None]] = {"save_checkpoint": half_a_checkpoint, "_open_file": half_a_line}
"""What a function leaves if a signal interrupts it while it writes."""


if __name__ == "__main__":
    serve(execute, kill_from_outside)
