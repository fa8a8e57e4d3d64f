"""Command lines of ours, each forked from one process that has imported everything: a second to start, not ten.

test ──► {"words": […], "folder": …} ──► this process ──fork──► python -m experiments.run …, typed in that folder
     ◄── {"status": 0} ◄─────────────────────── waits ◄──────── ends
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Forks:
    """The process that runs are forked from, seen from the test."""

    process: subprocess.Popen[str]
    log: Path
    """What the runs say."""

    def __call__(self, *words: str, **more: Any) -> int:
        """The exit status of a run, −9 where it was killed; ``more`` is for whoever serves."""
        asked, told = self.process.stdin, self.process.stdout
        assert asked is not None
        assert told is not None
        asked.write(json.dumps({"words": words, **more}) + "\n")
        asked.flush()
        answer = told.readline()
        assert answer, f"who forks the runs has ended itself ({self.process.wait()}), see {self.log}"
        return json.loads(answer)["status"]


@contextmanager
def forks(overrides: list[str], log: Path, *, server: str = __name__) -> Iterator[Forks]:
    """Runs of this experiment and its like can be started meanwhile. Each has one thread: sums keep their order."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-X", "faulthandler", "-m", server, *overrides]
    pipe = subprocess.PIPE
    with (
        log.open("w") as said,
        subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=said, text=True) as process,
    ):  # whose input ends with it
        yield Forks(process=process, log=log)


def serve(live: Callable[[dict[str, Any]], None], watch: Callable[[int, dict[str, Any]], None]) -> None:
    """Import what the experiment needs, then run what is asked for; compute nothing, for threads do not survive."""
    told = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what runs print is no answer
    import_parts(sys.argv[1:])
    for line in sys.stdin:
        asked = json.loads(line)
        run = os.fork()
        if run == 0:
            be(live, asked)
        watch(run, asked)
        _, status = os.waitpid(run, 0)
        told.write(json.dumps({"status": os.waitstatus_to_exitcode(status)}) + "\n")
        told.flush()


def import_parts(overrides: list[str]) -> None:
    from experiments.system.terminal import be_quiet

    be_quiet()
    from hydra import compose, initialize_config_module
    from omegaconf import OmegaConf

    from experiments.import_paths import is_ours
    from experiments.stages.code_hash import all_targets

    for ours in ("experiments.run", "experiments.stages.experiment"):  # the first makes the schema known
        import_module(ours)
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", overrides)
    for target in filter(is_ours, all_targets(OmegaConf.to_container(config, resolve=True))):
        import_module(target.rpartition(".")[0])
    for late in ("deepspeed", "mlflow", "sklearn.isotonic", "sklearn.manifold", "sklearn.linear_model"):  # in functions
        with suppress(ImportError):
            import_module(late)


def be(live: Callable[[dict[str, Any]], None], asked: dict[str, Any]) -> None:
    """Be the run; never returns."""
    status = 1
    try:
        os.setsid()
        sys.argv = ["experiments.run", *asked["words"]]
        live(asked)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except Exception:  # a forked process has no caller to raise to
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def typed(asked: dict[str, Any]) -> None:
    """The whole command line, in ``folder``."""
    import experiments.run

    os.chdir(asked["folder"])
    experiments.run.main()


if __name__ == "__main__":
    serve(typed, lambda *_: None)
