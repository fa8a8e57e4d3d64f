"""Jobs as processes: the outcome of each, their cores and GPUs, and how all are stopped."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from omegaconf import OmegaConf
from rich.console import Console

from experiments.jobs import runner
from experiments.jobs.job import JOB, LOG, STOP, Job, read_job
from experiments.jobs.progress import LiveJobs
from experiments.jobs.runner import LONGEST_CAUSE, _outcome, _wait, end_of, run_jobs
from experiments.run_folder.group_state import read_state
from experiments.run_folder.reader import JOB_RUN
from experiments.system import devices as shared
from experiments.system.devices import GPU_GROUPS, THREADS, VISIBLE

GPU = OmegaConf.create({"accelerator": "gpu", "devices": 2})
CPU = OmegaConf.create({"accelerator": "cpu", "devices": 1})


@pytest.fixture(autouse=True)
def _restore(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Restores the variables and the signal handlers that a group of jobs sets."""
    for name in (*THREADS, GPU_GROUPS, runner.SUPERVISOR):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def run(
    group: Path, code: str, *, jobs: int, at_once: int, trainer: object = CPU, launcher: str | None = None
) -> list[Job]:
    """Runs ``jobs`` jobs with this code instead of an experiment; ``NUMBER`` in it becomes the job's number."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            "experiments.jobs.runner._command",
            lambda job: [sys.executable, "-c", code.replace("NUMBER", str(job.number))],
        )
        listed = [
            Job(number=number, name=f"arm-{number}", overrides=(f"seed={number}", "arm=arm")) for number in range(jobs)
        ]
        live = LiveJobs(group=group, expected=listed, console=Console(file=io.StringIO()))
        return run_jobs(listed, trainers=[trainer] * jobs, at_once=at_once, live=live, launcher=launcher)


def interrupt_once_printed(group: Path, jobs: int, *, twice: bool = False) -> None:
    """Sends Ctrl-C when ``jobs`` jobs have printed a line; with ``twice``, again after the first was handled."""

    def interrupt() -> None:
        while sum(path.stat().st_size > 0 for path in group.glob(f"*/{LOG}")) < jobs:
            time.sleep(0.05)
        first = signal.getsignal(signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        while twice and signal.getsignal(signal.SIGINT) is first:
            time.sleep(0.05)
        if twice:
            os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt, daemon=True).start()


def state(group: Path) -> str:
    found = read_state(group)
    assert found is not None
    return found.state


def logs(group: Path) -> list[str]:
    return [path.read_text().strip() for path in sorted(group.glob(f"*/{LOG}"))]


@pytest.mark.parametrize(("launcher", "at_once"), [(None, 2), ("basic", 1), ("submitit_local", 1)])
def test_failed_job_does_not_stop_other_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, launcher: str | None, at_once: int
) -> None:
    """submitit's debug executor runs in this process what its SLURM executor would submit."""
    if launcher == "submitit_local":
        plugin = pytest.importorskip("hydra_plugins.hydra_submitit_launcher.submitit_launcher")
        monkeypatch.setattr(plugin.LocalLauncher, "_EXECUTOR", "debug")
    code = "import os, sys; print('no such model'); sys.exit(NUMBER % 2)"
    jobs = run(tmp_path, code, jobs=3, at_once=at_once, launcher=launcher)
    assert [(job.state, job.cause) for job in jobs] == [("done", None), ("failed", "no such model"), ("done", None)]
    assert jobs == [read_job(tmp_path / f"arm-{number}") for number in range(3)]
    assert state(tmp_path) == end_of(tmp_path, jobs) == "failed"


@pytest.mark.parametrize(
    ("at_once", "given", "threads"),
    [(1, None, "None None"), (2, None, "3 3"), (4, None, "1 1"), (9, None, "1 1"), (3, "7", "7 2")],
)
def test_jobs_share_cores_and_keep_user_thread_settings(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, at_once: int, given: str | None, threads: str
) -> None:
    monkeypatch.setattr(shared.os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    if given is not None:
        monkeypatch.setenv("OMP_NUM_THREADS", given)
    run(tmp_path, f"import os; print(*(os.environ.get(name) for name in {THREADS}))", jobs=1, at_once=at_once)
    assert logs(tmp_path) == [threads]


def test_concurrent_jobs_have_different_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VISIBLE, "0,1,2,3")
    seen = f"import os, time; began = time.monotonic(); time.sleep(1); print(os.environ[{VISIBLE!r}], began, "
    run(tmp_path, f"{seen}time.monotonic())", jobs=5, at_once=2, trainer=GPU)
    rows = [line.split() for line in logs(tmp_path)]
    assert {gpus for gpus, *_ in rows} == {"0,1", "2,3"}
    for gpus in ("0,1", "2,3"):
        times = sorted((float(began), float(ended)) for each, began, ended in rows if each == gpus)
        assert len(times) >= 2
        assert all(before[1] <= after[0] for before, after in pairwise(times)), "one after the other"


def test_launcher_of_other_machines_gets_neither_gpus_nor_threads_of_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(VISIBLE, "0,1,2,3")
    names = (VISIBLE, *THREADS)
    code = f"import os; print([os.environ.get(name) for name in {names!r}])"
    run(tmp_path, code, jobs=2, at_once=2, trainer=GPU, launcher="basic")
    assert logs(tmp_path) == [str(["0,1,2,3", *[None] * len(THREADS)])] * 2


def test_ctrl_c_stops_running_jobs_and_starts_no_others(tmp_path: Path) -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt_once_printed(tmp_path, 2)
    jobs = run(tmp_path, "import time; print(flush=True); time.sleep(60)", jobs=3, at_once=2)
    assert [job.state for job in jobs] == ["stopped"] * 3
    assert len(logs(tmp_path)) == 2
    assert end_of(tmp_path, jobs) == "stopped"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler, "Ctrl-C is the caller's again"


@pytest.mark.parametrize("of_launcher", [True, False])
def test_ctrl_c_leaves_a_process_of_the_launcher_to_the_supervisor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, of_launcher: bool
) -> None:
    """A terminal sends Ctrl-C to all processes. One that ends kills its job, which has a checkpoint to write."""

    def run_job(job: Job, group: Path, **_: object) -> Job:
        os.kill(os.getpid(), signal.SIGINT)
        return replace(job, state="stopped")

    signal.signal(signal.SIGINT, signal.default_int_handler)
    monkeypatch.setattr(runner, "run_job", run_job)
    monkeypatch.setenv(runner.SUPERVISOR, str(os.getppid() if of_launcher else os.getpid()))
    settings = {"sweep": {"dir": str(tmp_path), "subdir": "0"}, "job": {"num": 0}, "overrides": {"task": []}}
    with nullcontext() if of_launcher else pytest.raises(KeyboardInterrupt):
        assert runner.supervise(OmegaConf.create(settings)) is None


def test_second_ctrl_c_stops_without_waiting(tmp_path: Path) -> None:
    code = "import signal, time; signal.signal(signal.SIGINT, signal.SIG_IGN); print(flush=True); time.sleep(60)"
    interrupt_once_printed(tmp_path, 1, twice=True)
    began = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, code, jobs=1, at_once=1)
    assert time.monotonic() - began < 30
    assert state(tmp_path) == "stopped"


def test_run_jobs_ignores_files_of_earlier_jobs(tmp_path: Path) -> None:
    run(tmp_path, "pass", jobs=2, at_once=1)
    (tmp_path / "arm-1" / JOB_RUN).write_text('{"folder": "of before"}')
    (tmp_path / STOP).touch()
    (job,) = run(tmp_path, "pass", jobs=1, at_once=1)
    assert (job.state, job.run_folder(tmp_path)) == ("done", None)
    assert not (tmp_path / "arm-1" / JOB).exists()


def sleeper(*, deaf: bool = False) -> subprocess.Popen[bytes]:
    """By default the signal ends it, like a job that still imports its libraries."""
    handler = "signal.SIG_IGN" if deaf else "signal.default_int_handler"
    code = f"import signal, time; signal.signal(signal.SIGINT, {handler}); print(flush=True); time.sleep(60)"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()  # its signal handler is set now
    return process


def test_job_that_does_not_stop_is_killed_after_grace_period(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / STOP).touch()
    assert _wait(sleeper(), tmp_path / STOP) == -signal.SIGINT
    monkeypatch.setattr("experiments.jobs.runner.GRACE_SECONDS", 0.5)
    began = time.monotonic()
    assert _wait(sleeper(deaf=True), tmp_path / STOP) == -signal.SIGKILL
    assert time.monotonic() - began < 20


LONG = "x" * 10_000


@pytest.mark.parametrize(
    ("code", "stopped", "log", "outcome"),
    [
        (0, True, "", {"state": "done"}),
        (130, False, "", {"state": "stopped"}),
        (-signal.SIGINT, True, "", {"state": "stopped"}),
        (-signal.SIGKILL, False, "", {"state": "failed", "cause": "killed by SIGKILL"}),
        (1, False, "Traceback\n  line\nValueError: no\n\n \n", {"state": "failed", "cause": "ValueError: no"}),
        (1, False, "", {"state": "failed", "cause": "it printed nothing"}),
        (1, False, LONG, {"state": "failed", "cause": LONG[: LONGEST_CAUSE - 1] + "…"}),
    ],
)
def test_outcome_depends_on_exit_code(
    tmp_path: Path, code: int, stopped: bool, log: str, outcome: dict[str, str]
) -> None:
    """The cause is the last line that is not blank."""
    (tmp_path / LOG).write_text(log)
    assert _outcome(code, tmp_path / LOG, stopped=stopped) == outcome
