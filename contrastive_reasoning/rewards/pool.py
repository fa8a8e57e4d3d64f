"""A pool of killable processes that adds the wall clock to the verification of answers.

Most answers are numbers, words and lists of them, and are settled in this process in microseconds. What is left are
questions for a computer algebra system, which may take for ever, so they go to workers. One that is silent for longer
than its limit is killed and replaced, at the price of that limit; the answer it held is a ``timeout``.
"""

from __future__ import annotations

import os
import selectors
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from types import TracebackType
from typing import Literal, get_args

from contrastive_reasoning.rewards.worker import Worker, WorkerGone, worker_command
from contrastive_reasoning.tasks.answer import Question, pose, verify_choice
from contrastive_reasoning.tasks.answer.verify import GOLD_UNREAD
from contrastive_reasoning.tasks.base import Verdict

Kind = Literal["answer", "choice"]
START_S = 120.0
"""Seconds that a worker may take to load its libraries, on a machine that is busy with other things."""


class AnswerPool:
    """Verdicts on many answers at once, in their order. Workers start when first needed and are used again.

    Args:
        workers: processes at most.
        limit_s: seconds of wall clock for one answer. The budget of steps in ``tasks.answer`` ends what takes too long
            the same way on every machine; the limit is for what that cannot see, and may be generous.
    """

    def __init__(self, *, workers: int, limit_s: float) -> None:
        if workers < 1:
            raise ValueError(f"workers must be at least 1, got {workers}")
        if not limit_s > 0:
            raise ValueError(f"limit_s must be positive, got {limit_s}")
        self.workers = workers
        self.limit_s = limit_s
        self._running: list[Worker] = []
        self._owner = os.getpid()
        self._lock = threading.Lock()
        self._end = weakref.finalize(self, _kill, self._running, self._owner)

    def __call__(self, pairs: Sequence[tuple[str, str]], kind: Kind = "answer") -> list[Verdict]:
        """The verdict on each pair of a gold answer and a completion; for ``choice`` the gold answers are letters."""
        if kind not in get_args(Kind):
            raise ValueError(f"kind must be one of {', '.join(get_args(Kind))}, got {kind!r}")
        if kind == "choice":
            return [verify_choice(*pair) for pair in pairs]
        posed = [pose(*pair) for pair in pairs]
        with self._lock:
            settled = self._settle(dict.fromkeys(item for item in posed if isinstance(item, Question)))
        return [settled[item] if isinstance(item, Question) else item for item in posed]

    def close(self) -> None:
        """End all workers. A later call starts new ones."""
        with self._lock:
            _kill(self._running, self._owner)

    def __enter__(self) -> AnswerPool:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple:
        return _build, (self.workers, self.limit_s)

    def _settle(self, questions: dict[Question, None]) -> dict[Question, Verdict]:
        """The verdict on each question; whatever happens, no worker stays behind with a question."""
        self._forget_if_forked()
        waiting, settled = deque(questions), {}
        try:
            while len(settled) < len(questions):
                self._hand_out(waiting)
                settled |= self._wait()
        finally:
            for worker in [worker for worker in self._running if worker.question]:
                self._drop(worker)
        return settled

    def _hand_out(self, waiting: deque[Question]) -> None:
        """A question to every ready worker; new workers while there are more questions than hands."""
        for worker in [worker for worker in self._running if worker.has_ended]:
            self._drop(worker)
        for worker in self._running:
            if waiting and worker.ready and worker.question is None:
                worker.ask(waiting.popleft(), time.monotonic() + self.limit_s)
        starting = sum(not worker.ready for worker in self._running)
        for _ in range(min(self.workers - len(self._running), len(waiting) - starting)):
            worker = Worker(worker_command())
            worker.deadline = time.monotonic() + START_S
            self._running.append(worker)

    def _wait(self) -> dict[Question, Verdict]:
        """What the workers say next, or what their silence means."""
        settled: dict[Question, Verdict] = {}
        with selectors.DefaultSelector() as selector:
            for worker in self._running:
                selector.register(worker, selectors.EVENT_READ)
            until = min(worker.deadline for worker in self._running)
            for key, _ in selector.select(max(0.0, until - time.monotonic())):
                settled |= self._hear(key.fileobj)  # pyright: ignore[reportArgumentType]
        now = time.monotonic()
        for worker in [worker for worker in self._running if worker.deadline < now]:
            settled |= self._lost(worker, Verdict(status="timeout", reason=f"no verdict within {self.limit_s:g} s"))
        return settled

    def _hear(self, worker: Worker) -> dict[Question, Verdict]:
        try:
            message = worker.hear()
        except WorkerGone as gone:
            return self._lost(worker, Verdict(status="error", reason=f"worker ended with {gone}"))
        if message is None:
            return {}
        question, worker.question, worker.deadline = worker.question, None, float("inf")
        worker.ready = True
        if question is None:
            return {}
        if message[0] == "error" and message[1] != GOLD_UNREAD:
            self._drop(worker)  # out of memory, perhaps: it is not asked again
        return {question: Verdict(status=message[0], reason=message[1])}  # pyright: ignore[reportArgumentType]

    def _lost(self, worker: Worker, verdict: Verdict) -> dict[Question, Verdict]:
        self._drop(worker)
        if not worker.ready:
            raise RuntimeError(f"a worker of the pool did not start: {' '.join(worker_command())}: {verdict.reason}")
        return {worker.question: verdict} if worker.question else {}

    def _drop(self, worker: Worker) -> None:
        self._running.remove(worker)
        worker.kill()

    def _forget_if_forked(self) -> None:
        """The workers of a parent that forked are not ours to ask or to end."""
        if self._owner != os.getpid():
            self._owner, self._running = os.getpid(), []
            self._end.detach()
            self._end = weakref.finalize(self, _kill, self._running, self._owner)


def _kill(workers: list[Worker], owner: int) -> None:
    while workers and owner == os.getpid():
        workers.pop().kill()


def _build(workers: int, limit_s: float) -> AnswerPool:
    return AnswerPool(workers=workers, limit_s=limit_s)
