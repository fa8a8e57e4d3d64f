"""Verdicts on many answers at once, with a wall-clock limit for each answer.

    AnswerPool, here        most answers: numbers, words or lists of them; microseconds
    its workers, ``main``   answers that need a computer algebra system, which may never finish

A request to a worker is JSON, ``[gold, answer]``, and the reply is ``[status, reason]``. Workers use neither torch nor
pickle. An answer that takes too long is a ``timeout``. An answer on which a process dies is an ``error``. More errors
than a share end the run: a single answer can crash the verifier, but the verdicts of a verifier that keeps crashing are
useless.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Literal, get_args

from contrastive_reasoning.ranges import one_of
from contrastive_reasoning.tasks.answer import Question, pose, settle, verify_choice
from contrastive_reasoning.tasks.answer.symbolic import load
from contrastive_reasoning.tasks.answer.verify import GOLD_UNREAD
from contrastive_reasoning.tasks.base import Verdict
from contrastive_reasoning.workers.failures import ErrorShare, VerifierFailed
from contrastive_reasoning.workers.pool import (
    FATAL,
    READY,
    Connection,
    WorkerPool,
    WorkerRefused,
    limit_memory,
    worker_command,
)

Kind = Literal["answer", "choice"]
MEMORY = 2 * 2**30
"""Address space of a worker in bytes; a worker that has loaded sympy needs about a tenth of it."""


class AnswerPool:
    """Verdicts on many answers, in their order. Workers start when first needed and are reused.

    Args:
        workers: the maximum number of processes.
        limit_s: seconds of wall clock for one answer. The step budget in ``tasks.answer`` ends long computations
            identically on every machine; this limit covers what the budget does not count, and may be generous.
        max_failures: the share of the last 1,000 judged answers that may end in an error. It applies from 20 answers
            on, or from 4 if all of them are errors. Equal answers that are judged together count once.

    Raises ValueError for a number out of range.
    """

    def __init__(self, *, workers: int, limit_s: float, max_failures: float) -> None:
        self.errors = ErrorShare(max_failures, of="answers", key="its max_failures")
        self.workers = workers
        self.limit_s = limit_s
        self.pool = WorkerPool(command=answer_worker(), greeting=b"", workers=workers, limit_s=limit_s)

    def __call__(self, pairs: Sequence[tuple[str, str]], kind: Kind = "answer") -> list[Verdict]:
        """Returns a verdict for each pair of gold answer and completion; for ``choice`` the gold answers are letters.

        Raises:
            VerifierFailed: if too many of the last answers ended in an error, or no worker starts.
            ValueError: for an unknown kind.
        """
        one_of(get_args(Kind), kind=kind)
        if kind == "choice":
            return [verify_choice(*pair) for pair in pairs]
        posed = [pose(*pair) for pair in pairs]
        questions = list(dict.fromkeys(item for item in posed if isinstance(item, Question)))
        try:
            replies = self.pool([json.dumps(question).encode() for question in questions])
        except WorkerRefused as error:
            raise VerifierFailed(f"could not start a worker for symbolic comparison: {error}") from error
        settled = {
            question: Verdict(status=reply.status, reason=reply.value)  # pyright: ignore[reportArgumentType]
            for question, reply in zip(questions, replies, strict=True)
        }
        verdicts = [settled[item] if isinstance(item, Question) else item for item in posed]
        different = [item if isinstance(item, Question) else pair for item, pair in zip(posed, pairs, strict=True)]
        self.errors.add(dict(zip(different, verdicts, strict=True)).values())
        return verdicts

    def close(self) -> None:
        """Ends all workers; a later call starts new ones."""
        self.pool.close()


def answer_worker() -> list[str]:
    return worker_command(__name__)


def main() -> None:
    """Settles questions until the input ends; the worker's side."""
    parent = Connection()
    limit_memory(MEMORY)
    load()
    parent.send(READY, "")
    while True:
        verdict = settle(Question(*json.loads(parent.receive())))
        # the process may be out of memory; only an unreadable gold answer is not its fault
        fatal = not verdict.judged and verdict.reason != GOLD_UNREAD
        parent.send(FATAL if fatal else verdict.status, verdict.reason)


if __name__ == "__main__":
    main()
