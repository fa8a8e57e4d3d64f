"""The process that settles questions for the pool: ``python -m contrastive_reasoning.tasks.answer.worker BYTES``.

One line of JSON comes in per question, ``[gold, answer]``, and one goes out, ``[status, reason]``; before the first, a
line says that the libraries are loaded. No torch, nothing of the parent's main module, no pickle. The process ends when
its input does, so with its parent, even in the middle of a question; it has no more memory than it was given, and the
interrupt key is not its business.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import sys
import threading

from contrastive_reasoning.tasks.answer.symbolic import load
from contrastive_reasoning.tasks.answer.verify import Question, settle

READY = "ready"


def main(memory: int) -> None:
    """Settle questions until the input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    limit_memory(memory)
    replies = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="ascii")
    # what a library prints must not stand between the replies
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    load()
    questions: queue.SimpleQueue[str] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(questions,), daemon=True).start()
    print(json.dumps([READY, ""]), file=replies, flush=True)
    while True:
        verdict = settle(Question(*json.loads(questions.get())))
        print(json.dumps([verdict.status, verdict.reason]), file=replies, flush=True)


def limit_memory(memory: int) -> None:
    """Let the process have ``memory`` bytes of address space, where the platform can limit it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    except (ImportError, ValueError, OSError):
        return


def _listen(questions: queue.SimpleQueue[str]) -> None:
    for line in sys.stdin:
        questions.put(line)
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
