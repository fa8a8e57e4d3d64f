"""Real runs that end by a signal at a chosen place, each forked from one process that has imported everything.

    test ──► {"overrides": […], "place": "reward", "step": 3} ──► this process ──fork──► python -m experiments.run …
         ◄── {"status": -9} ◄──────────────────────────────────────── waits ◄──────────── killed

A run does what the command line does; nothing in it knows what will come. The signal is SIGKILL, after which nothing is
tidied up, or those that were asked for.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import IO, Any

PLACES: dict[str, tuple[str, str, int]] = {
    "rollout": ("contrastive_reasoning.rollout.continuous:ContinuousDecode", "_record", 5),
    "reward": ("contrastive_reasoning.rewards:CalibratedReward", "__call__", 1),
    "backward": ("lightning_modules.policy_updates:PolicyUpdates", "loss", 2),
    "after the optimizer's step": ("lightning_modules.grpo:GRPO", "report_step", 1),
    "logging": ("experiments.run_folder:RunFolderLogger", "_opened", 1),
    "validation": ("lightning_modules.grpo:GRPO", "validation_step", 1),
    "critic's step": ("lightning_modules.critic:CriticPretraining", "training_step", 1),
    "writing a checkpoint": ("lightning:Trainer", "save_checkpoint", 1),
    "checkpoint beside": ("experiments.stage_checkpoint", "_replace", 1),
    "checkpoint in place": ("experiments.stage_checkpoint", "seal", 1),
    "checkpoint sealed": ("experiments.stage_checkpoint", "clear", 1),
    "last step done": ("experiments.fits", "save_whole", 1),
    "no result yet": ("experiments.stages", "write_result", 1),
}
"""Where a run can be killed: a class or module, its function, and which of its calls within a step is the last."""


@dataclass(frozen=True, kw_only=True)
class Runs:
    """The process that runs are forked from, seen from the test."""

    process: subprocess.Popen[str]
    log: Path
    """What the runs say."""

    def __call__(self, *overrides: str, **death: Any) -> int:
        """The exit status of a run, −9 where it was killed: at ``place`` in ``step``, there by ``signals`` if given, or
        once ``file`` has ``lines`` lines and ``seconds`` more have passed."""
        asked, told = self.process.stdin, self.process.stdout
        assert asked is not None
        assert told is not None
        asked.write(json.dumps({"overrides": overrides, **death}) + "\n")
        asked.flush()
        answer = told.readline()
        assert answer, f"who forks the runs has ended itself ({self.process.wait()}), see {self.log}"
        return json.loads(answer)["status"]


@contextmanager
def runs(overrides: list[str], log: Path) -> Iterator[Runs]:
    """Runs of this experiment can be started meanwhile. Each has one thread: sums keep their order."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-X", "faulthandler", "-m", "tests.integration.killing", *overrides]
    pipe = subprocess.PIPE
    with (
        log.open("w") as said,
        subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=said, text=True) as process,
    ):  # whose input ends with it
        yield Runs(process=process, log=log)


def main() -> None:
    """Import what the experiment needs, then run what is asked for; compute nothing, for threads do not survive."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what runs print is no answer
    import_parts(sys.argv[1:])
    for line in sys.stdin:
        asked = json.loads(line)
        run = os.fork()
        if run == 0:
            live(asked)
        if "file" in asked:
            kill_from_outside(run, asked)
        _, status = os.waitpid(run, 0)
        told.write(json.dumps({"status": os.waitstatus_to_exitcode(status)}) + "\n")
        told.flush()


def import_parts(overrides: list[str]) -> None:
    from experiments.quiet import be_quiet

    be_quiet()
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    from experiments.rooms import targets

    for ours in ("experiments.run", "experiments.stages"):  # the first makes the schema known
        import_module(ours)
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", overrides)
    for target in targets(OmegaConf.to_container(config, resolve=True)):
        import_module(target.rpartition(".")[0])
    for late in ("deepspeed", "mlflow"):  # what saving a policy imports
        with suppress(ImportError):
            import_module(late)


def live(asked: dict[str, Any]) -> None:
    """Be the run; never returns."""
    import experiments.run

    status = 1
    try:
        os.setsid()
        if "place" in asked:
            strike_at(asked["place"], asked["step"], asked.get("signals", [signal.SIGKILL]))
        sys.argv = ["experiments.run", *asked["overrides"]]
        experiments.run.run()
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def kill_from_outside(run: int, asked: dict[str, Any]) -> None:
    """Wait until the file has so many lines, and so many seconds more."""
    path = Path(asked["file"])
    while os.waitid(os.P_PID, run, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
        if path.exists() and path.read_bytes().count(b"\n") >= asked["lines"]:
            time.sleep(asked["seconds"])
            os.killpg(run, signal.SIGKILL)
            return
        time.sleep(0.005)


def strike_at(place: str, step: int, signals: list[int]) -> None:
    """Send this process the signals where a call of that place in ``step`` begins; 0: before the first."""
    from experiments.stage_checkpoint import StageCheckpoint, steps_of

    under_way = 0
    between = StageCheckpoint.on_train_batch_start

    @wraps(between)
    def counted(self: StageCheckpoint, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
        nonlocal under_way
        between(self, trainer, pl_module, batch, batch_idx)
        under_way = steps_of(trainer, pl_module) + 1

    StageCheckpoint.on_train_batch_start = counted
    room, name, call = PLACES[place]
    module, _, kind = room.partition(":")
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


HALF_DONE: dict[str, Callable[..., None]] = {"save_checkpoint": half_a_checkpoint, "_opened": half_a_line}
"""What is left where the function had begun to write."""


if __name__ == "__main__":
    main()
