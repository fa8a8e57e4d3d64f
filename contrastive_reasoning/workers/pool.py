"""Worker processes for code that may hang, crash or exhaust memory: the parent's pool and the worker's connection.

    WorkerPool ─── request, one line ──→  descriptor 0 ─→ a thread that reads ─→ Connection.receive
               ←── reply, one line ─────  a copy of descriptor 1 ←───────────── Connection.send

A reply is JSON, ``[status, value]``, never a pickle, because data from a user's function is not trusted. A worker that
does not reply within its limit is killed and replaced, and so is one that has ended. Its request gets a ``timeout`` or
an ``error`` as its reply; no other request is lost.

A worker ends when its input ends, and therefore with its parent, even in the middle of a request. An interrupt from the
keyboard does not reach it. Output and input of libraries never mix with requests and replies. Nothing here imports
torch. (``concurrent.futures`` cannot kill a single hanging worker, and ``multiprocessing`` imports the parent's main
module.)
"""

from __future__ import annotations

import ctypes
import json
import os
import queue
import selectors
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from contrastive_reasoning.ranges import above, at_least

READY, TIMEOUT, ERROR, FATAL, REFUSED = "ready", "timeout", "error", "fatal", "refused"
"""Statuses that the pool handles. After ``fatal`` the worker is replaced, and the caller receives ``error``. After
``refused`` the call of the pool raises."""
START_S = 120.0
"""Seconds that a worker may take to load its libraries; generous, for a busy machine."""
EXIT_S = 5.0
"""Seconds to wait for a process to end after its output has closed."""
PR_SET_PDEATHSIG = 1
"""Option of Linux's prctl: the signal that a process receives when its parent ends."""


class WorkerGone(Exception):
    """Raised if the process has ended; the message contains its exit code or that its output closed."""


class WorkerRefused(RuntimeError):
    """Raised if a worker does not start or refuses to go on; the pool does not retry, since another would do so."""


class Reply(NamedTuple):
    status: str
    value: Any
    """The result, or the reason for its absence."""


class WorkerPool:
    """Processes many requests and returns the replies in order. Workers start on first use and are reused.

    Args:
        command: the command that starts a worker.
        greeting: lines that are written to each worker before its first request.
        workers: maximum number of processes.
        limit_s: wall-clock limit for one request, in seconds.

    Raises:
        ValueError: if there is fewer than 1 worker, or the limit is not positive.
    """

    def __init__(self, *, command: Sequence[str], greeting: bytes, workers: int, limit_s: float) -> None:
        at_least(1, workers=workers)
        above(0, limit_s=limit_s)
        self.command = command
        self.greeting = greeting
        self.workers = workers
        self.limit_s = limit_s
        self.running: list[Worker] = []
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _kill, self.running, self._owner)

    def __call__(self, requests: Sequence[bytes]) -> list[Reply]:
        """Returns the reply to each request; a request is one line without its line end.

        Workers that still hold a request when the call ends, for example after an exception, are killed.

        Raises:
            WorkerRefused: if a worker does not become ready, or refuses to go on.
        """
        with self._lock:
            self._forget_if_forked()
            waiting, replies = deque(enumerate(requests)), dict[int, Reply]()
            try:
                while len(replies) < len(requests):
                    self._hand_out(waiting)
                    replies |= self._wait()
            finally:
                for worker in [worker for worker in self.running if worker.request is not None]:
                    self._drop(worker)
        return [replies[number] for number in range(len(requests))]

    def close(self) -> None:
        """Ends all workers. A later call starts new ones."""
        with self._lock:
            _kill(self.running, self._owner)

    def __reduce__(self) -> tuple:
        arguments = {"command": self.command, "greeting": self.greeting}
        return partial(WorkerPool, workers=self.workers, limit_s=self.limit_s, **arguments), ()

    def _hand_out(self, waiting: deque[tuple[int, bytes]]) -> None:
        """Sends a request to every idle worker; starts workers while more requests wait than workers are starting."""
        for worker in [worker for worker in self.running if worker.has_ended]:
            self._drop(worker)
        for worker in self.running:
            if waiting and worker.ready and worker.request is None:
                worker.send(*waiting.popleft(), time.monotonic() + self.limit_s)
        starting = sum(not worker.ready for worker in self.running)
        for _ in range(min(self.workers - len(self.running), len(waiting) - starting)):
            worker = Worker(self.command, self.greeting)
            worker.deadline = time.monotonic() + START_S
            self.running.append(worker)

    def _wait(self) -> dict[int, Reply]:
        """Waits for the next replies; workers beyond their deadline are dropped and yield a ``timeout``."""
        replies: dict[int, Reply] = {}
        with selectors.DefaultSelector() as selector:
            for worker in self.running:
                selector.register(worker, selectors.EVENT_READ)
            until = min(worker.deadline for worker in self.running)
            for key, _ in selector.select(max(0.0, until - time.monotonic())):
                replies |= self._receive(key.fileobj)  # pyright: ignore[reportArgumentType]
        now = time.monotonic()
        for worker in [worker for worker in self.running if worker.deadline < now]:
            limit = self.limit_s if worker.ready else START_S
            replies |= self._lose(worker, Reply(TIMEOUT, f"no reply within {limit:g} s"))
        return replies

    def _receive(self, worker: Worker) -> dict[int, Reply]:
        try:
            reply = worker.receive()
        except WorkerGone as gone:
            return self._lose(worker, Reply(ERROR, f"worker ended with {gone}"))
        except (ValueError, TypeError):
            return self._lose(worker, Reply(ERROR, "worker sent something that is not a reply"))
        if reply is None:
            return {}
        if not worker.ready and reply.status != READY:
            return self._lose(worker, reply)
        if reply.status == REFUSED:
            raise WorkerRefused(reply.value)
        worker.ready = True
        request, worker.request, worker.deadline = worker.request, None, float("inf")
        if reply.status == FATAL:
            self._drop(worker)
            reply = reply._replace(status=ERROR)
        return {} if request is None else {request: reply}

    def _lose(self, worker: Worker, reply: Reply) -> dict[int, Reply]:
        self._drop(worker)
        if not worker.ready:
            raise WorkerRefused(f"a worker of the pool did not start: {' '.join(self.command)}: {reply.value}")
        return {} if worker.request is None else {worker.request: reply}

    def _drop(self, worker: Worker) -> None:
        self.running.remove(worker)
        worker.kill()

    def _forget_if_forked(self) -> None:
        """Discards the workers after a fork: they belong to the parent process, which alone may use and end them."""
        if self._owner != os.getpid():
            self._owner, self.running = os.getpid(), []
            self._finalizer.detach()
            self._finalizer = weakref.finalize(self, _kill, self.running, self._owner)


def _kill(workers: list[Worker], owner: int) -> None:
    while workers and owner == os.getpid():
        workers.pop().kill()


class Worker:
    """The parent's end of one worker process, which handles one request at a time. The constructor starts it."""

    def __init__(self, command: Sequence[str], greeting: bytes) -> None:
        root, path = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
        same = {  # the path of this package, and a fixed hash seed: the same order of sets in every process
            "PYTHONPATH": os.pathsep.join([root, path] if path else [root]),
            "PYTHONHASHSEED": "0",
        }
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | same,
            # a keyboard interrupt reaches the whole terminal session; and the worker's children are killed with it
            start_new_session=True,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._requests, self._replies = self.process.stdin, self.process.stdout
        self.request: int | None = None
        """Number of the request in progress; None if idle."""
        self.deadline = float("inf")
        self.ready = False
        self._read = b""
        self._write(greeting)

    def fileno(self) -> int:
        """The file descriptor that becomes readable when the worker has sent data."""
        return self._replies.fileno()

    @property
    def has_ended(self) -> bool:
        return self.request is None and self.process.poll() is not None

    def send(self, number: int, request: bytes, deadline: float) -> None:
        """Sends a request, one line without its line end, to a ready worker. The caller enforces the deadline."""
        self.request, self.deadline = number, deadline
        self._write(request + b"\n")

    def receive(self) -> Reply | None:
        """Returns a reply that has arrived completely, else None. Blocks only if nothing can be read.

        Raises:
            WorkerGone: if the process has ended.
        """
        read = os.read(self.fileno(), 65536)
        if not read:
            try:
                raise WorkerGone(f"exit code {self.process.wait(EXIT_S)}")
            except subprocess.TimeoutExpired:
                raise WorkerGone("its output closed") from None
        line, end, self._read = (self._read + read).partition(b"\n")
        if not end:
            self._read = line
            return None
        return Reply(*json.loads(line))

    def kill(self) -> None:
        """Ends the process and its child processes immediately. Repeated calls are harmless."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self._requests.close()
        self._replies.close()

    def _write(self, lines: bytes) -> None:
        with suppress(BrokenPipeError):  # ``receive`` reports the ended worker
            while lines:  # without a buffer, write may take only a part
                lines = lines[self._requests.write(lines) :]


def worker_command(module: str, *arguments: object) -> list[str]:
    """The command that runs a module of this package as a worker."""
    return [sys.executable, "-m", module, *map(str, arguments)]


class Connection:
    """The worker's end: the two pipes of this process. It is created once, before anything else is loaded."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if sys.platform == "linux":  # needed while C code holds the GIL: the thread then cannot see the end of input
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        self._replies = os.fdopen(_detach(sys.stdout.fileno(), os.O_WRONLY), "w", encoding="ascii")
        requests = os.fdopen(_detach(sys.stdin.fileno(), os.O_RDONLY), encoding="ascii")
        self._requests: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()

    def receive(self) -> str:
        """Returns the next line; blocks until there is one."""
        return self._requests.get()

    def send(self, status: str, value: object) -> None:
        print(json.dumps([status, value]), file=self._replies, flush=True)

    def _read(self, requests: TextIO) -> None:
        for line in requests:
            self._requests.put(line)
        os._exit(0)


def limit_memory(memory: int) -> None:
    """Limits the address space of the process to ``memory`` bytes, if the platform supports it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    except (ImportError, ValueError, OSError):
        return


def memory_in_use() -> int:
    """Bytes of address space of this process; 0 if the platform does not report it."""
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def _detach(descriptor: int, access: int) -> int:
    """Returns a copy that child processes do not inherit, and connects the descriptor itself to the null device."""
    copy = os.dup(descriptor)
    os.dup2(os.open(os.devnull, access), descriptor)
    return copy
