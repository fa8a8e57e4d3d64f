"""Starts and stops the ranks of a run on several devices together.

    make exp … trainer=ddp ──► this process ──► rank 0, rank 1, …      the same command again, with RANK and WORLD_SIZE
                                  └─ forwards signals; after the first failure of a rank, kills the others

torchrun, or srun with torchrun on every node, sets the same variables. Each job of a sweep starts its own ranks.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from types import FrameType

from experiments.system.devices import THREADS, cores_each
from experiments.system.secrets import hide_secrets
from experiments.system.terminal import first_line

FAILED, INTERRUPTED = 1, 128 + signal.SIGINT
SIGNALS = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}
"""Signals that stop a run, and their names in messages."""
GOOD_CODES = (0, INTERRUPTED)
"""Exit codes of ranks that did not fail."""
GRACE_SECONDS = 10
"""Time between the first failure of a rank and the kill of the ranks that still run."""
CLOCK_NS = 20_000_000
"""File timestamps may be this many ns behind the clock."""
WAIT = timedelta(hours=3)
"""Longest time that a rank waits for another one. It exceeds any phase's limit, after which the watchdog dumps where
each rank is; otherwise the waiting ranks would end a hanging rank before the dump. A dead rank is noticed at once."""
CAUSES, PIPED = "CONTRASTIVE_REASONING_CAUSES", "CONTRASTIVE_REASONING_PIPED"
"""Variables of a rank started here: the folder for the cause of its failure; a mark that its stdin is a pipe that ends
with the launcher."""


def is_launched() -> bool:
    """Whether this process is one of several ranks."""
    return world_size() > 1 and "RANK" in os.environ


def world_size() -> int:
    return int(os.environ.get("WORLD_SIZE", "1"))


def is_rank_zero() -> bool:
    """Whether this process is rank 0, or the only one."""
    return not is_launched() or os.environ["RANK"] == "0"


def launcher_reports_cause() -> bool:
    """Whether the launcher prints why this rank failed: :func:`launch` does, torchrun and srun do not."""
    return CAUSES in os.environ


def launch(command: Sequence[str], processes: int, *, variables: Mapping[str, str]) -> int:
    """Runs the command as ``processes`` ranks on this machine.

    Returns the exit code of the first rank that failed, else 0, or 130 after an interrupt. Each rank gets its share of
    the cores, or as many threads as ``OMP_NUM_THREADS`` or ``MKL_NUM_THREADS`` allows. Each SIGINT or SIGTERM is
    forwarded, without a time limit for the ranks to stop.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        free_port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as causes:
        address = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port)}
        # with TORCHELASTIC_RUN_ID Lightning reads torchrun's variables; otherwise SLURM's, which describe one task
        ours = {"TORCHELASTIC_RUN_ID": "ranks", CAUSES: causes, PIPED: "1"}
        threads = {} if set(THREADS) & set(os.environ) else dict.fromkeys(THREADS, str(cores_each(processes)))
        sizes = {"WORLD_SIZE": str(processes), "LOCAL_WORLD_SIZE": str(processes), "GROUP_RANK": "0"}
        shared = {**os.environ, **address, **ours, **threads, **variables, **sizes}
        started = [
            subprocess.Popen(
                command,
                env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
                stdin=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C reaches only this process, which forwards it once
            )
            for rank in range(processes)
        ]
        with _forward_signals(started):
            code, rank = _wait_for_all(started, Path(causes))
        if code not in GOOD_CODES:
            path = Path(causes, str(rank))
            cause = f" ({path.read_text(encoding='utf-8')})" if path.exists() else ""
            print(f"rank {rank} failed first{cause}; the others were stopped", file=sys.stderr)
        return code


def _wait_for_all(ranks: Sequence[subprocess.Popen[bytes]], causes: Path) -> tuple[int, int]:
    """Waits for all ranks, but at most ``GRACE_SECONDS`` after the first failure.

    Returns the exit code of the launch and the rank that it comes from.
    """
    first: int | None = None
    deadline, alive, killed = float("inf"), dict.fromkeys(range(len(ranks)), time.time_ns()), set[int]()
    while running := [number for number, rank in enumerate(ranks) if _is_running(rank, number, alive)]:
        if first is None:
            first = _first_failure(ranks, causes, alive)
            deadline = float("inf") if first is None else time.monotonic() + GRACE_SECONDS
        if time.monotonic() > deadline:
            killed.update(running)
            for number in running:
                ranks[number].kill()
        time.sleep(0.05)
    first = _first_failure(ranks, causes, alive) if first is None else first
    codes = [_exit_code(rank) or 0 for rank in ranks]
    if first is None:
        return max(codes), 0
    return codes[first] if codes[first] not in GOOD_CODES and first not in killed else FAILED, first


def _is_running(rank: subprocess.Popen[bytes], number: int, alive: dict[int, int]) -> bool:
    """Whether a rank is running. If so, sets its entry in ``alive`` to the time in ns just before the check."""
    now = time.time_ns()
    if rank.poll() is not None:
        return False
    alive[number] = now
    return True


def _first_failure(ranks: Sequence[subprocess.Popen[bytes]], causes: Path, alive: Mapping[int, int]) -> int | None:
    """The rank that failed first, or None while no rank has ended in failure. An interrupted rank did not fail.

    A rank that ends without writing a cause (killed, ``os._exit``) makes the others fail, and they may end before its
    end is noticed. So it takes precedence over ranks with a cause, unless a cause was written while it was still
    running: it may have ended because of that failure. Among ranks with a cause the earliest counts, even if it has not
    ended yet.
    """
    codes = {number: _exit_code(rank) for number, rank in enumerate(ranks)}
    failed = [number for number, code in codes.items() if code not in (None, *GOOD_CODES)]
    written = {int(path.name): path.stat().st_mtime_ns for path in causes.iterdir()}
    written = {number: when for number, when in written.items() if codes[number] not in GOOD_CODES}
    first = min(written, key=lambda number: written[number], default=None)
    silent = [number for number in failed if number not in written]
    if not failed or (silent and (first is None or written[first] > alive[silent[0]] - CLOCK_NS)):
        return silent[0] if failed else None
    return first


def _exit_code(rank: subprocess.Popen[bytes]) -> int | None:
    """The exit code as in a shell: 128 + the signal's number if a signal ended the rank; None while it is running."""
    code = rank.poll()
    return 128 - code if code is not None and code < 0 else code


@contextmanager
def _forward_signals(ranks: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    def forward(number: int, frame: FrameType | None) -> None:
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(number)

    before = {number: signal.signal(number, forward) for number in SIGNALS}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def process_group() -> Iterator[None]:
    """Context manager in which the ranks can communicate; does nothing if this process is the only one.

    Only rank 0 prints to stdout. A rank that fails reports the cause and exits without waiting for the others.
    """
    if not is_launched():
        yield
        return
    import torch
    from torch import distributed
    from torch.distributed import distributed_c10d

    if PIPED in os.environ:
        threading.Thread(target=_end_with_launcher, daemon=True).start()
    if not is_rank_zero():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    # the trainer assigns this rank's device, which may be the CPU
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):  # DeepSpeed creates groups without a timeout
        setattr(distributed_c10d, name, WAIT)
    distributed.init_process_group(backend, timeout=WAIT)
    try:
        yield
    except BaseException as error:  # also KeyboardInterrupt and SystemExit: the launcher prints the cause
        report_cause(error)
        raise
    distributed.barrier()  # otherwise a rank that still communicates with one that has ended would abort
    distributed.destroy_process_group()


def report_cause(error: BaseException) -> None:
    """Writes one line about the error for the launcher of this rank; only the first call has an effect."""
    folder = os.environ.get(CAUSES)
    if folder is None:
        return
    with suppress(FileExistsError), (Path(folder) / os.environ["RANK"]).open("x", encoding="utf-8") as file:
        file.write(hide_secrets(f"{type(error).__name__}: {first_line(error)}"))


def _end_with_launcher() -> None:
    """Exits when the launcher has ended for any reason; a rank alone would wait forever and keep its locks."""
    while os.read(0, 4096):  # not sys.stdin: a thread must not hold its lock when Python ends
        pass
    os._exit(FAILED)
