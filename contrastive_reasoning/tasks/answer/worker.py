"""The process that settles questions for the pool: ``python -m contrastive_reasoning.tasks.answer.worker BYTES``.

One line of JSON comes in per question, ``[gold, answer]``, and one goes out, ``[status, reason]``; before the first, a
line says that the libraries are loaded. No torch, nothing of the parent's main module, no pickle, and no more memory
than it was given.
"""

from __future__ import annotations

import json
import sys

from contrastive_reasoning.tasks.answer.symbolic import load
from contrastive_reasoning.tasks.answer.verify import Question, settle
from contrastive_reasoning.tasks.worker_process import READY, Conversation, limit_memory


def main(memory: int) -> None:
    """Settle questions until the input ends."""
    parent = Conversation()
    limit_memory(memory)
    load()
    parent.say(READY, "")
    while True:
        verdict = settle(Question(*json.loads(parent.hear())))
        parent.say(verdict.status, verdict.reason)


if __name__ == "__main__":
    main(int(sys.argv[1]))
