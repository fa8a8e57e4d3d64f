"""The process that settles symbolic answers: ``python -m contrastive_reasoning.tasks.answer.worker BYTES``.

A request is JSON, ``[gold, answer]``, and the reply is ``[status, reason]``. The process uses neither torch nor pickle
nor the parent's main module, and at most BYTES of memory.
"""

from __future__ import annotations

import json
import sys

from contrastive_reasoning.tasks.answer.symbolic import load
from contrastive_reasoning.tasks.answer.verify import GOLD_UNREAD, Question, settle
from contrastive_reasoning.tasks.worker_pool import FATAL, READY, Connection, limit_memory


def main(memory: int) -> None:
    """Settles questions until the input ends."""
    parent = Connection()
    limit_memory(memory)
    load()
    parent.send(READY, "")
    while True:
        verdict = settle(Question(*json.loads(parent.receive())))
        # the process may be out of memory; only an unreadable gold answer is not its fault
        fatal = not verdict.judged and verdict.reason != GOLD_UNREAD
        parent.send(FATAL if fatal else verdict.status, verdict.reason)


if __name__ == "__main__":
    main(int(sys.argv[1]))
