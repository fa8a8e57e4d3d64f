"""Jobs share out the machine's cores, unless the user has said how many threads each may have, and its GPUs."""

import os
import sys
from itertools import pairwise
from pathlib import Path

import pytest

from experiments.study.jobs import Job
from experiments.study.processes import run_jobs
from experiments.system import devices as shared
from experiments.system.devices import THREADS, VISIBLE


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


class Seeing(Job):
    """A job that writes which GPUs it may see, and when it began and ended."""

    @property
    def command(self) -> list[str]:
        told = f"print(os.environ.get({VISIBLE!r}), began, time.monotonic())"
        return [sys.executable, "-c", f"import os, time; began = time.monotonic(); time.sleep(1); {told}"]


def test_jobs_that_run_at_once_see_other_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VISIBLE, "0,1,2,3")
    jobs = [Seeing(arm="arm", seed=seed, overrides=()) for seed in range(5)]
    assert not run_jobs(jobs, parallel=2, logs=tmp_path, tell=lambda _: None, gpus=["0,1", "2,3"])
    told = [(tmp_path / f"arm-{seed}.log").read_text().split() for seed in range(5)]
    for gpus in ("0,1", "2,3"):
        runs = sorted((float(began), float(ended)) for seen, began, ended in told if seen == gpus)
        assert len(runs) >= 2
        assert all(before[1] <= after[0] for before, after in pairwise(runs)), "one after the other"
    assert len(told) == sum(seen in ("0,1", "2,3") for seen, *_ in told)


def test_without_gpus_to_share_out_jobs_see_what_we_see(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VISIBLE, "3")
    assert not run_jobs([Seeing(arm="arm", seed=0, overrides=())], parallel=1, logs=tmp_path, tell=lambda _: None)
    assert (tmp_path / "arm-0.log").read_text().split()[0] == "3"
