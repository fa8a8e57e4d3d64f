"""Command lines, each run in a fork of one process that has imported everything: one second to start, not ten.

test ──► {"words": […], "folder": …} ──► this process ──fork──► python -m experiments.run …, in that folder
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

SHORT = ("budget.grpo.validation_problems=2", "callbacks.grpo.throughput.peak_flops=1e9")
"""Overrides for a run that starts quickly. Without a number, each start measures the processor."""


@dataclass(frozen=True, kw_only=True)
class Forks:
    """The test's handle of the process that forks the runs."""

    process: subprocess.Popen[str]
    log: Path
    """The output of the runs."""

    def __call__(self, *words: str, **more: Any) -> int:
        """The exit status of a run, −9 if it was killed. ``more`` goes to the functions that ``serve`` has."""
        requests, answers = self.process.stdin, self.process.stdout
        assert requests is not None
        assert answers is not None
        requests.write(json.dumps({"words": words, **more}) + "\n")
        requests.flush()
        answer = answers.readline()
        assert answer, f"who forks the runs has ended itself ({self.process.wait()}), see {self.log}"
        return json.loads(answer)["status"]


@contextmanager
def forks(overrides: list[str], log: Path, *, server: str = __name__, source: Path | None = None) -> Iterator[Forks]:
    """Start runs of this experiment and similar ones within the context, without the network.

    Each has one thread, so that sums keep their order. The code is in ``source``, by default this repository.
    """
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}
    command = [sys.executable, "-X", "faulthandler", "-m", server, *overrides]
    pipe = subprocess.PIPE
    with (
        log.open("w") as output,
        subprocess.Popen(
            command, cwd=source, env=environment, stdin=pipe, stdout=pipe, stderr=output, text=True
        ) as process,
    ):  # leaving the context closes its input
        yield Forks(process=process, log=log)


def serve(execute: Callable[[dict[str, Any]], None], watch: Callable[[int, dict[str, Any]], None]) -> None:
    """Import what the experiment needs, then fork a run for each request. Compute nothing: threads do not survive."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # the output of runs must not reach the answers
    import_parts(sys.argv[1:])
    for line in sys.stdin:
        request = json.loads(line)
        run = os.fork()
        if run == 0:
            run_and_exit(execute, request)
        watch(run, request)
        _, status = os.waitpid(run, 0)
        answers.write(json.dumps({"status": os.waitstatus_to_exitcode(status)}) + "\n")
        answers.flush()


def import_parts(overrides: list[str]) -> None:
    from experiments.system.terminal import be_quiet

    be_quiet()
    from hydra import compose

    from experiments.config.composition import parts
    from experiments.config.folders import is_ours
    from experiments.schema import composing

    for ours in ("experiments.run", "experiments.stages.experiment"):  # the first registers the schema
        import_module(ours)
    with composing():
        config = compose("config", overrides)
    for target in filter(is_ours, [str(part._target_) for _, part in parts(config)]):
        import_module(target.rpartition(".")[0])
    # modules that our code imports within functions
    for late in ("deepspeed", "mlflow", "sklearn.isotonic", "sklearn.manifold", "sklearn.linear_model"):
        with suppress(ImportError):
            import_module(late)


def run_and_exit(execute: Callable[[dict[str, Any]], None], request: dict[str, Any]) -> None:
    """Run in this process and exit; never returns."""
    status = 1
    try:
        os.setsid()
        sys.argv = ["experiments.run", *request["words"]]
        execute(request)
        status = 0
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else 1
    except Exception:  # a forked process has no caller to raise to
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def run_command_line(request: dict[str, Any]) -> None:
    """Run the whole command line in ``folder``, with standard error in the file ``errors`` if given."""
    import experiments.run

    if "errors" in request:
        os.dup2(os.open(request["errors"], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
    os.chdir(request["folder"])
    sys.path.insert(0, request["folder"])  # as after python -m
    experiments.run.main()


if __name__ == "__main__":
    serve(run_command_line, lambda *_: None)
