"""Ranks as real processes: common success, the first failure stops all, and signals reach each rank."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from hydra import compose

from experiments.schema import composing
from experiments.system.devices import THREADS
from experiments.system.launch import WAIT, launch

pytestmark = pytest.mark.whole

PREAMBLE = """
import os, signal, sys, time
from experiments.system.launch import process_group
from contrastive_reasoning.distributed import barrier, gather, ranks, this_rank
"""
LIMIT = 30
"""Seconds after the first failure within which all ranks must end."""


def command(body: str) -> list[str]:
    return [sys.executable, "-c", PREAMBLE + textwrap.dedent(body)]


def started(body: str) -> subprocess.Popen[str]:
    """Starts the launcher as a separate process, as a user does."""
    script = (
        f"from experiments.system.launch import launch; raise SystemExit(launch({command(body)!r}, 2, variables={{}}))"
    )
    own = [sys.executable, "-c", script]
    return subprocess.Popen(own, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def test_ranks_communicate_share_cores_and_only_rank_0_prints(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    body = """
    with process_group():
        print(ranks(), gather([os.environ.get(name) for name in ("SAID", "OMP_NUM_THREADS", "MKL_NUM_THREADS")]))
    """
    for name in THREADS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: set(range(6)), raising=False)
    assert launch(command(body), 2, variables={"SAID": "yes"}) == 0
    assert capfd.readouterr().out.splitlines() == [f"2 {[['yes', '3', '3']] * 2}"]
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert launch(command(body), 2, variables={"SAID": "yes"}) == 0
    assert capfd.readouterr().out.splitlines() == [f"2 {[['yes', '1', None]] * 2}"]


def test_lightning_takes_ranks_from_launcher_not_from_slurm(capfd: pytest.CaptureFixture[str]) -> None:
    """In a SLURM job with one task, which starts the ranks of its node."""
    body = """
    with process_group():
        from lightning import Trainer
        trainer = Trainer(accelerator="cpu", devices=2, strategy="ddp", logger=False, enable_checkpointing=False)
        print(gather((trainer.global_rank, trainer.world_size, trainer.local_rank)))
    """
    slurm = {"SLURM_NTASKS": "1", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURM_JOB_NAME": "sweep"}
    assert launch(command(body), 2, variables=slurm) == 0
    assert "[(0, 2, 0), (1, 2, 1)]" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("end", "code", "message"),
    [
        ("raise ValueError('the first cause\\nand more')", 1, "rank 1 failed first (ValueError: the first cause)"),
        ("os._exit(3)", 3, "rank 1 failed first; the others were stopped"),
        ("os.kill(os.getpid(), signal.SIGKILL)", 137, "rank 1 failed first; the others were stopped"),
    ],
    ids=["raises", "exits", "is killed"],
)
def test_failed_rank_stops_all_ranks_and_its_cause_is_printed(
    end: str, code: int, message: str, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if code != 1:
        monkeypatch.setattr("experiments.system.launch.GRACE_SECONDS", 1)  # only one case waits for the real duration
    body = f"""
    with process_group():
        barrier()
        if this_rank() == 1:
            {end}
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
        time.sleep(600)  # in a kernel that waits for the other
    """
    start = time.monotonic()
    ended = launch(command(body), 2, variables={})
    assert ended == code or (code == 1 and ended == 134), "torch may abort on its way out"
    assert time.monotonic() - start < LIMIT
    assert message in capfd.readouterr().err


LATER_ERROR = 'time.sleep(0.5); raise RuntimeError("the other is gone")'


@pytest.mark.parametrize(
    ("then", "at_the_end", "grace"),
    [
        (LATER_ERROR, "time.sleep(2 * this_rank())", 10),
        # like the watchdog of a library: it aborts silently when the other rank has disconnected but still runs
        ("time.sleep(1); os._exit(134)", "time.sleep(3)", 10),
        (LATER_ERROR, "time.sleep(600 * this_rank())", 1),
    ],
    ids=["rank 0 ends first", "rank 0 aborts first", "rank 1 does not end and is killed"],
)
def test_first_written_cause_is_printed(
    then: str, at_the_end: str, grace: int, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """``then``: code of rank 0 after rank 1 has raised; ``at_the_end``: code of both ranks before they exit."""
    monkeypatch.setattr("experiments.system.launch.GRACE_SECONDS", grace)
    body = f"""
    try:
        with process_group():
            barrier()
            if this_rank() == 1:
                raise ValueError("the first cause")
            {then}
    finally:
        {at_the_end}
    """
    assert launch(command(body), 2, variables={}) in (1, 134), "torch may abort on its way out"
    assert "rank 1 failed first (ValueError: the first cause)" in capfd.readouterr().err


def test_signal_reaches_each_rank_and_launcher_waits() -> None:
    body = """
    def end(number, frame):
        time.sleep(0.5 + this_rank())
        print("ended well", file=sys.stderr, flush=True)
        os._exit(130)
    with process_group():
        signal.signal(signal.SIGTERM, end)
        barrier()
        print("ready", file=sys.stderr, flush=True)
        while True:  # a signal just before one long sleep, or in another thread, would not end it
            time.sleep(0.1)
    """
    launcher = started(body)
    assert launcher.stderr is not None
    assert launcher.stderr.read(12).replace("\n", "") == "readyready"  # two processes may write on the same line
    launcher.send_signal(signal.SIGTERM)
    _, errors = launcher.communicate(timeout=LIMIT)
    assert errors.count("ended well") == 2
    assert launcher.returncode == 130


def test_ranks_do_not_outlive_their_launcher(tmp_path: Path) -> None:
    body = f"""
    with process_group():
        with open({str(tmp_path)!r} + "/" + str(this_rank()), "w") as file:
            file.write(str(os.getpid()))
        barrier()
        print("ready", flush=True)
        time.sleep(600)
    """
    launcher = started(body)
    assert launcher.stdout is not None
    assert launcher.stdout.readline() == "ready\n"
    launcher.kill()
    launcher.wait()
    ranks = [int((tmp_path / str(rank)).read_text()) for rank in range(2)]
    deadline = time.monotonic() + LIMIT
    while any(map(alive, ranks)) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not any(map(alive, ranks))


def alive(process: int) -> bool:
    with suppress(psutil.NoSuchProcess):
        return psutil.Process(process).status() != psutil.STATUS_ZOMBIE
    return False


def test_process_groups_of_deepspeed_have_same_timeout(capfd: pytest.CaptureFixture[str]) -> None:
    """DeepSpeed exchanges gradients in a group that it creates itself."""
    body = """
    import deepspeed, torch
    deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # as the strategy: nothing is compiled
    with process_group():
        deepspeed.init_distributed("gloo")
        from deepspeed.utils.groups import _clone_world_group
        groups = torch.distributed.group.WORLD, _clone_world_group()
        print(*(group._get_backend(torch.device("cpu")).options._timeout for group in groups))
    """
    assert launch(command(body), 2, variables={}) == 0
    assert capfd.readouterr().out.splitlines()[-1] == f"{WAIT} {WAIT}"


def test_rank_timeout_exceeds_every_watchdog_limit() -> None:
    """The watchdog must write the stacks of a hanging rank before the waiting ranks time out."""
    with composing():
        config = compose("config", ["experiment=llama_critic"])
    watchdogs = [callbacks.watchdog for callbacks in config.callbacks.values() if "watchdog" in callbacks]
    limits = [limit for watchdog in watchdogs for limit in watchdog.limits.values()]
    assert len(limits) > 5
    assert max(limits) < WAIT.total_seconds()
