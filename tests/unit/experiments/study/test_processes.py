"""Jobs share out the machine's cores, unless the user has said how many threads each may have."""

import os
import sys
from pathlib import Path

import pytest

from experiments import threads as shared
from experiments.study.jobs import Job
from experiments.study.processes import run_jobs
from experiments.threads import THREADS


class Telling(Job):
    """A job that writes its threads into its log."""

    @property
    def command(self) -> list[str]:
        return [sys.executable, "-c", f"import os; print(*(os.environ[name] for name in {THREADS}))"]


def _threads_of_jobs(folder: Path, parallel: int) -> list[str]:
    jobs = [Telling(arm="arm", seed=seed, overrides=()) for seed in range(2)]
    assert not run_jobs(jobs, parallel=parallel, logs=folder, tell=lambda _: None)
    return [(folder / f"arm-{seed}.log").read_text().strip() for seed in range(2)]


@pytest.mark.parametrize(("parallel", "threads"), [(1, 6), (2, 3), (4, 1), (9, 1)])
def test_jobs_share_the_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, parallel: int, threads: int) -> None:
    monkeypatch.setattr(shared.os, "cpu_count", lambda: 6)
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    assert _threads_of_jobs(tmp_path, parallel) == [f"{threads} {threads}"] * 2


def test_the_users_threads_are_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    mine = max(1, os.cpu_count() or 1)
    assert _threads_of_jobs(tmp_path, 1) == [f"7 {mine}"] * 2
