"""The processes of a run on several devices: started together, stopped together, and what each of them must know.

    make exp … trainer=ddp ──► this process ──► rank 0, rank 1, …      the same command again, with RANK and WORLD_SIZE
                                  └─ passes signals on; the first rank that fails ends the others

Ranks may as well be started by torchrun, or by srun with torchrun on every node: they find the same variables. Each job
of a sweep starts its own.
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

from experiments.system.first_line import first_line
from experiments.system.secret_values import concealed
from experiments.system.threads import THREADS, cores_each

FAILED, INTERRUPTED = 1, 128 + signal.SIGINT
WELL = (0, INTERRUPTED)
"""Exit codes of ranks that did not fail."""
GRACE_SECONDS = 10
"""Between the first rank that fails and the end of those that wait for it."""
CLOCK_NS = 20_000_000
"""By so much may the time of a file lie before the clock's."""
WAIT = timedelta(hours=3)
"""The longest that a rank waits for another one. Longer than any phase may take before the watchdog writes down where
each rank stands: those that wait would else end the one that hangs before that. One that died is seen at once."""
CAUSES, HELD = "CONTRASTIVE_REASONING_CAUSES", "CONTRASTIVE_REASONING_HELD"
"""Variables of a rank that was started here: where to say why it failed, and that its input ends when we do."""


def launched() -> bool:
    """Whether this process is a rank of several."""
    return world_size() > 1 and "RANK" in os.environ


def world_size() -> int:
    """How many ranks were started."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def leads() -> bool:
    """Whether this process is rank 0, or the only one."""
    return not launched() or os.environ["RANK"] == "0"


def answered_for() -> bool:
    """Whether who started this rank says why it failed: torchrun and srun do not."""
    return CAUSES in os.environ


def launch(command: Sequence[str], processes: int, *, variables: Mapping[str, str]) -> int:
    """Run the command as so many ranks of this machine; the exit code, that of the first which failed.

    Each has its share of the cores, or as many threads as ``OMP_NUM_THREADS`` or ``MKL_NUM_THREADS`` says.
    Each SIGINT or SIGTERM is passed on; how long a rank takes to stop is its own matter.
    """
    with tempfile.TemporaryDirectory() as causes:
        port = _free_port()
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        # Lightning asks torchrun's variables first where this is set, else SLURM's, which know one task of the job
        named = {"TORCHELASTIC_RUN_ID": "ranks", CAUSES: causes, HELD: "1"}
        threads = {} if set(THREADS) & set(os.environ) else dict.fromkeys(THREADS, str(cores_each(processes)))
        shared = {**meeting, **named, **threads, **variables}
        started = [_start(command, rank, processes, shared) for rank in range(processes)]
        with _passing_on_signals(started):
            code, rank = _first_end(started, Path(causes))
        if code not in (0, INTERRUPTED):
            print(f"rank {rank} failed first{_cause(Path(causes), rank)}; the others were stopped", file=sys.stderr)
        return code


def _start(command: Sequence[str], rank: int, processes: int, shared: Mapping[str, str]) -> subprocess.Popen[bytes]:
    own = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": processes, "LOCAL_WORLD_SIZE": processes, "GROUP_RANK": 0}
    variables = {**os.environ, **shared, **{name: str(value) for name, value in own.items()}}
    # a session of its own: Ctrl-C reaches this process alone, which passes it on once
    return subprocess.Popen(command, env=variables, stdin=subprocess.PIPE, start_new_session=True)


def _first_end(ranks: Sequence[subprocess.Popen[bytes]], causes: Path) -> tuple[int, int]:
    """Wait for all; after the first failure only for so long. The code that counts, and whose it is."""
    blamed: int | None = None
    deadline, alive, ours = float("inf"), dict.fromkeys(range(len(ranks)), time.time_ns()), set[int]()
    while running := [number for number, rank in enumerate(ranks) if _still_runs(rank, number, alive)]:
        if blamed is None:
            blamed = _first_failure(ranks, causes, alive)
            deadline = float("inf") if blamed is None else time.monotonic() + GRACE_SECONDS
        if time.monotonic() > deadline:
            ours.update(running)
            for number in running:
                ranks[number].kill()
        time.sleep(0.05)
    codes = [_code(rank) or 0 for rank in ranks]
    blamed = _first_failure(ranks, causes, alive) if blamed is None else blamed
    if blamed is None:
        return max(codes), 0
    return codes[blamed] if codes[blamed] not in WELL and blamed not in ours else FAILED, blamed


def _still_runs(rank: subprocess.Popen[bytes], number: int, alive: dict[int, int]) -> bool:
    """Whether it does; if so ``alive`` has the time, in ns, at which that was asked."""
    asked = time.time_ns()
    if rank.poll() is not None:
        return False
    alive[number] = asked
    return True


def _first_failure(ranks: Sequence[subprocess.Popen[bytes]], causes: Path, alive: Mapping[int, int]) -> int | None:
    """Who failed first, once any has ended so: to stop because that was asked for is no failure.

    Of what ends a rank the others hear nothing until it has ended: then they fail, too, and may be gone before it is
    noticed. So one that ended without a word, killed or by ``os._exit``, comes before those that have said a cause, but
    for a cause that was said while it still ran: it may have ended of that. Among those that have said one the first
    comes first, even if it has not ended yet.
    """
    codes = {number: _code(rank) for number, rank in enumerate(ranks)}
    failed = [number for number, code in codes.items() if code not in (None, *WELL)]
    told = {int(path.name): path.stat().st_mtime_ns for path in causes.iterdir()}
    told = {number: when for number, when in told.items() if codes[number] not in WELL}
    first = min(told, key=lambda number: told[number], default=None)
    silent = [number for number in failed if number not in told]
    if not failed or (silent and (first is None or told[first] > alive[silent[0]] - CLOCK_NS)):
        return silent[0] if failed else None
    return first


def _code(rank: subprocess.Popen[bytes]) -> int | None:
    """As a shell tells it: 128 + the signal's number where a signal ended it; None while it runs."""
    code = rank.poll()
    return 128 - code if code is not None and code < 0 else code


@contextmanager
def _passing_on_signals(ranks: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    def pass_on(number: int, frame: FrameType | None) -> None:
        for rank in ranks:
            if rank.poll() is None:
                rank.send_signal(number)

    before = {number: signal.signal(number, pass_on) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _cause(folder: Path, rank: int) -> str:
    said = folder / str(rank)
    return f" ({said.read_text(encoding='utf-8')})" if said.exists() else ""


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def joined() -> Iterator[None]:
    """Within it the ranks can speak to each other, if this process is one of several.

    Only rank 0 prints. A rank that fails says why, and leaves without waiting for the others.
    """
    if not launched():
        yield
        return
    import torch
    from torch import distributed
    from torch.distributed import distributed_c10d

    _end_with_launcher(os.environ)
    if not leads():
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115 - as long as the process
    # which device is this rank's the trainer says, who may have none for it, or the CPU
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    for name in ("default_pg_timeout", "default_pg_nccl_timeout"):  # of groups that DeepSpeed makes, which names none
        setattr(distributed_c10d, name, WAIT)
    distributed.init_process_group(backend, timeout=WAIT)
    try:
        yield
    except BaseException as error:  # KeyboardInterrupt and SystemExit, too: the others report this cause
        say_cause(error)
        raise
    distributed.barrier()  # or one that is still speaking finds the other gone, and aborts
    distributed.destroy_process_group()


def say_cause(error: BaseException) -> None:
    """Leave a line for who started this rank; the first one stays."""
    folder = os.environ.get(CAUSES)
    if folder is None:
        return
    with suppress(FileExistsError), (Path(folder) / os.environ["RANK"]).open("x", encoding="utf-8") as file:
        file.write(concealed(f"{type(error).__name__}: {first_line(error)}"))


def _end_with_launcher(variables: Mapping[str, str]) -> None:
    """Leave when the launcher is gone, however it went: a rank alone would wait for ever, and keep its locks."""
    if HELD in variables:
        threading.Thread(target=_wait_for_end, daemon=True).start()


def _wait_for_end() -> None:
    while os.read(0, 4096):  # not sys.stdin, whose lock a thread must not hold when Python ends
        pass
    os._exit(FAILED)
