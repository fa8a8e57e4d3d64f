"""A pool of killable processes that adds the wall clock to what may take for ever.

One that is silent for longer than its limit is killed and replaced, at the price of that limit; so is one that ends.
The question that it held has that for a reply, and no other question is lost.
"""

from __future__ import annotations

import os
import selectors
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Sequence

from contrastive_reasoning.rewards.worker import Reply, Worker, WorkerGone
from contrastive_reasoning.tasks.worker_process import READY

START_S = 120.0
"""Seconds that a worker may take to load its libraries, on a machine that is busy with other things."""
TIMEOUT, ERROR = "timeout", "error"
"""The statuses of replies that the pool gives itself."""


class WorkerRefused(RuntimeError):
    """A worker did not become ready; another would not either."""


class WorkerPool:
    """Replies to many questions, in their order. Workers start when first needed and are used again.

    Args:
        command: of a worker.
        greeting: lines that each is told first.
        workers: processes at most.
        limit_s: seconds of wall clock for one question.
        spent: whether a worker that says this is not asked again; importable, for a pool travels to other processes.

    Raises:
        ValueError: for fewer than 1 worker, or a limit that is not positive.
    """

    def __init__(
        self, *, command: Sequence[str], greeting: bytes, workers: int, limit_s: float, spent: Callable[[Reply], bool]
    ) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        if not limit_s > 0:
            raise ValueError(f"limit_s must be positive, got {limit_s}")
        self.command = command
        self.greeting = greeting
        self.workers = workers
        self.limit_s = limit_s
        self.spent = spent
        self.running: list[Worker] = []
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, _kill, self.running, self._owner)

    def __call__(self, questions: Sequence[bytes]) -> list[Reply]:
        """The reply to each question, a line without its end; whatever happens, no worker stays behind with one.

        Raises:
            WorkerRefused: if a worker does not become ready.
        """
        with self._lock:
            self._forget_if_forked()
            waiting, replies = deque(enumerate(questions)), dict[int, Reply]()
            try:
                while len(replies) < len(questions):
                    self._hand_out(waiting)
                    replies |= self._wait()
            finally:
                for worker in [worker for worker in self.running if worker.question is not None]:
                    self._drop(worker)
        return [replies[number] for number in range(len(questions))]

    def close(self) -> None:
        """End all workers. A later call starts new ones."""
        with self._lock:
            _kill(self.running, self._owner)

    def __reduce__(self) -> tuple:
        return _build, (self.command, self.greeting, self.workers, self.limit_s, self.spent)

    def _hand_out(self, waiting: deque[tuple[int, bytes]]) -> None:
        """A question to every ready worker; new workers while there are more questions than hands."""
        for worker in [worker for worker in self.running if worker.has_ended]:
            self._drop(worker)
        for worker in self.running:
            if waiting and worker.ready and worker.question is None:
                worker.ask(*waiting.popleft(), time.monotonic() + self.limit_s)
        starting = sum(not worker.ready for worker in self.running)
        for _ in range(min(self.workers - len(self.running), len(waiting) - starting)):
            worker = Worker(self.command, self.greeting)
            worker.deadline = time.monotonic() + START_S
            self.running.append(worker)

    def _wait(self) -> dict[int, Reply]:
        """What the workers say next, or what their silence means."""
        replies: dict[int, Reply] = {}
        with selectors.DefaultSelector() as selector:
            for worker in self.running:
                selector.register(worker, selectors.EVENT_READ)
            until = min(worker.deadline for worker in self.running)
            for key, _ in selector.select(max(0.0, until - time.monotonic())):
                replies |= self._hear(key.fileobj)  # pyright: ignore[reportArgumentType]
        now = time.monotonic()
        for worker in [worker for worker in self.running if worker.deadline < now]:
            limit = self.limit_s if worker.ready else START_S
            replies |= self._lost(worker, Reply(TIMEOUT, f"no reply within {limit:g} s"))
        return replies

    def _hear(self, worker: Worker) -> dict[int, Reply]:
        try:
            reply = worker.hear()
        except WorkerGone as gone:
            return self._lost(worker, Reply(ERROR, f"worker ended with {gone}"))
        except (ValueError, TypeError):
            return self._lost(worker, Reply(ERROR, "worker said what is no reply"))
        if reply is None:
            return {}
        if not worker.ready and reply.status != READY:
            return self._lost(worker, reply)
        worker.ready = True
        question, worker.question, worker.deadline = worker.question, None, float("inf")
        if self.spent(reply):
            self._drop(worker)
        return {} if question is None else {question: reply}

    def _lost(self, worker: Worker, reply: Reply) -> dict[int, Reply]:
        self._drop(worker)
        if not worker.ready:
            raise WorkerRefused(f"a worker of the pool did not start: {' '.join(self.command)}: {reply.said}")
        return {} if worker.question is None else {worker.question: reply}

    def _drop(self, worker: Worker) -> None:
        self.running.remove(worker)
        worker.kill()

    def _forget_if_forked(self) -> None:
        """The workers of a parent that forked are not ours to ask or to end."""
        if self._owner != os.getpid():
            self._owner, self.running = os.getpid(), []
            self._end.detach()
            self._end = weakref.finalize(self, _kill, self.running, self._owner)


def _kill(workers: list[Worker], owner: int) -> None:
    while workers and owner == os.getpid():
        workers.pop().kill()


def _build(command: Sequence[str], greeting: bytes, workers: int, limit_s: float, spent: Callable) -> WorkerPool:
    return WorkerPool(command=command, greeting=greeting, workers=workers, limit_s=limit_s, spent=spent)
