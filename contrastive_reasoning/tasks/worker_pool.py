"""Worker processes for code that may hang, crash or take all memory: the parent's pool and the worker's connection.

    WorkerPool ─── request, one line ──→  descriptor 0 ─→ a thread that reads ─→ Connection.receive
               ←── reply, one line ─────  a copy of descriptor 1 ←───────────── Connection.send

A reply is JSON, ``[status, value]``, never a pickle: nothing is trusted that has been near a user's function. A worker
that is silent for longer than its limit is killed and replaced, at the price of that limit; so is one that ends. The
request that it held then has a ``timeout`` or an ``error`` for its reply, and no other request is lost.

A worker ends when its input does, so with its parent, even in the middle of a request. The interrupt key does not
reach it, and what a library prints or reads is never mixed up with requests and replies. Nothing here imports torch.
(``concurrent.futures`` cannot kill one worker that hangs, and ``multiprocessing`` imports the parent's main module.)
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

READY, TIMEOUT, ERROR, FATAL = "ready", "timeout", "error", "fatal"
"""Statuses that the pool knows. ``fatal`` is an error after which the worker is replaced; callers see ``error``."""
START_S = 120.0
"""Seconds that a worker may take to load its libraries, on a machine that is busy with other things."""
EXIT_S = 5.0
"""Seconds between the end of a process's output and its own."""
PR_SET_PDEATHSIG = 1
"""Of Linux's prctl: the signal that a process gets when its parent ends."""


class WorkerGone(Exception):
    """The process has ended; the message says how."""


class WorkerRefused(RuntimeError):
    """A worker did not become ready; another would not either."""


class Reply(NamedTuple):
    status: str
    value: Any
    """The result, or the reason why there is none."""


class WorkerPool:
    """Replies to many requests, in their order. Workers start when first needed and are used again.

    Args:
        command: of a worker.
        greeting: lines that are written to each worker before its first request.
        workers: processes at most.
        limit_s: seconds of wall clock for one request.

    Raises:
        ValueError: for fewer than 1 worker, or a limit that is not positive.
    """

    def __init__(self, *, command: Sequence[str], greeting: bytes, workers: int, limit_s: float) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        if not limit_s > 0:
            raise ValueError(f"limit_s must be positive, got {limit_s}")
        self.command = command
        self.greeting = greeting
        self.workers = workers
        self.limit_s = limit_s
        self.running: list[Worker] = []
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._finalizer = weakref.finalize(self, _kill, self.running, self._owner)

    def __call__(self, requests: Sequence[bytes]) -> list[Reply]:
        """The reply to each request, a line without its end; whatever happens, no worker keeps one.

        Raises:
            WorkerRefused: if a worker does not become ready.
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
        """End all workers. A later call starts new ones."""
        with self._lock:
            _kill(self.running, self._owner)

    def __reduce__(self) -> tuple:
        arguments = {"command": self.command, "greeting": self.greeting}
        return partial(WorkerPool, workers=self.workers, limit_s=self.limit_s, **arguments), ()

    def _hand_out(self, waiting: deque[tuple[int, bytes]]) -> None:
        """A request to every idle worker; new workers while more requests wait than workers are starting."""
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
        """The next replies, and those of workers whose time is over."""
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
            return self._lose(worker, Reply(ERROR, "worker sent what is no reply"))
        if reply is None:
            return {}
        if not worker.ready and reply.status != READY:
            return self._lose(worker, reply)
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
        """The workers of a parent that forked are not ours to use or to end."""
        if self._owner != os.getpid():
            self._owner, self.running = os.getpid(), []
            self._finalizer.detach()
            self._finalizer = weakref.finalize(self, _kill, self.running, self._owner)


def _kill(workers: list[Worker], owner: int) -> None:
    while workers and owner == os.getpid():
        workers.pop().kill()


class Worker:
    """The parent's end of one process, which handles one request at a time; it starts at once."""

    def __init__(self, command: Sequence[str], greeting: bytes) -> None:
        root, path = str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH")
        same = {  # the path of this package, and the same order of sets in every process
            "PYTHONPATH": os.pathsep.join([root, path] if path else [root]),
            "PYTHONHASHSEED": "0",
        }
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=os.environ | same,
            # the interrupt key reaches the whole session of a terminal; and what the worker starts is killed with it
            start_new_session=True,
            bufsize=0,
        )
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self._requests, self._replies = self.process.stdin, self.process.stdout
        self.request: int | None = None
        """The number of the request that it holds."""
        self.deadline = float("inf")
        self.ready = False
        self._read = b""
        self._write(greeting)

    def fileno(self) -> int:
        """The descriptor that is readable once the worker has sent something."""
        return self._replies.fileno()

    @property
    def has_ended(self) -> bool:
        return self.request is None and self.process.poll() is not None

    def send(self, number: int, request: bytes, deadline: float) -> None:
        """Send a request, a line without its end, to a ready worker; the caller watches the deadline."""
        self.request, self.deadline = number, deadline
        self._write(request + b"\n")

    def receive(self) -> Reply | None:
        """A reply that has arrived whole; None if there is more to come. Waits only if nothing can be read.

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
        """End the process and all that it started, now; more than once does no harm."""
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()
        self.process.wait()
        self._requests.close()
        self._replies.close()

    def _write(self, lines: bytes) -> None:
        with suppress(BrokenPipeError):  # the end of the worker's output is what reports it
            while lines:
                lines = lines[self._requests.write(lines) :]


def worker_command(module: str, *arguments: object) -> list[str]:
    """The command that runs a module of ours as a worker."""
    return [sys.executable, "-m", module, *map(str, arguments)]


class Connection:
    """The worker's end: the two pipes of this process. Made once, before anything else is loaded."""

    def __init__(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        if sys.platform == "linux":  # the end of the input is not noticed while C code holds the interpreter lock
            with suppress(OSError, AttributeError):
                ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        self._replies = os.fdopen(_detach(sys.stdout.fileno(), os.O_WRONLY), "w", encoding="ascii")
        requests = os.fdopen(_detach(sys.stdin.fileno(), os.O_RDONLY), encoding="ascii")
        self._requests: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, args=(requests,), daemon=True).start()

    def receive(self) -> str:
        """The next line; waits for it."""
        return self._requests.get()

    def send(self, status: str, value: object) -> None:
        print(json.dumps([status, value]), file=self._replies, flush=True)

    def _read(self, requests: TextIO) -> None:
        for line in requests:
            self._requests.put(line)
        os._exit(0)


def limit_memory(memory: int) -> None:
    """Let the process have ``memory`` bytes of address space, where the platform can limit it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    except (ImportError, ValueError, OSError):
        return


def memory_in_use() -> int:
    """Bytes of address space of this process; 0 where the platform does not know."""
    with suppress(OSError):
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        return pages * os.sysconf("SC_PAGE_SIZE")
    return 0


def _detach(descriptor: int, access: int) -> int:
    """A copy that no child process inherits; the descriptor itself reads from and writes to nothing any more."""
    copy = os.dup(descriptor)
    os.dup2(os.open(os.devnull, access), descriptor)
    return copy
