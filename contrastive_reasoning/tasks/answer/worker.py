"""The process that settles symbolic answers: ``python -m contrastive_reasoning.tasks.answer.worker BYTES``.

A request is JSON, ``[gold, answer]``, its reply ``[status, reason]``. No torch, nothing of the parent's main module, no
pickle, and no more memory than it was given.
"""

from __future__ import annotations

import json
import sys

from contrastive_reasoning.tasks.answer.symbolic import load
from contrastive_reasoning.tasks.answer.verify import GOLD_UNREAD, Question, settle
from contrastive_reasoning.tasks.worker_pool import FATAL, READY, Connection, limit_memory


def main(memory: int) -> None:
    """Settle questions until the input ends."""
    parent = Connection()
    limit_memory(memory)
    load()
    parent.send(READY, "")
    while True:
        verdict = settle(Question(*json.loads(parent.receive())))
        # out of memory, perhaps: only a gold answer that does not parse is no fault of this process
        fatal = not verdict.judged and verdict.reason != GOLD_UNREAD
        parent.send(FATAL if fatal else verdict.status, verdict.reason)


if __name__ == "__main__":
    main(int(sys.argv[1]))
