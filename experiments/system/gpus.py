"""The GPUs of this machine, shared out among the jobs that run on it at once: a job sees its own and no other's.

8 GPUs, 3 jobs at once, trainer.devices=2      seats 0,1 · 2,3 · 4,5
2 GPUs, 3 jobs at once, trainer.devices=1      seats 0 · 1 · 0
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice, takewhile
from pathlib import Path
from typing import Any

from experiments.system.lock import lock

VISIBLE = "CUDA_VISIBLE_DEVICES"
SEATS = "CONTRASTIVE_REASONING_SEATS"
"""The variable by which a sweep tells its jobs which seats there are."""
BETWEEN = ";"


def seats(trainers: Sequence[Any], at_once: int) -> list[str]:
    """For each of ``at_once`` jobs what it may see of CUDA's devices; there are as many in it as the largest job needs.

    Empty where nothing is shared out: one job at a time, none that uses a GPU, fewer GPUs than a job needs, or a job
    that names its devices or takes all there are.

    Args:
        trainers: the node ``trainer`` of the jobs.
        at_once: how many of them run at a time.
    """
    using = [trainer for trainer in trainers if trainer.accelerator in ("auto", "cuda", "gpu")]
    counts = [trainer.devices for trainer in using]
    if at_once < 2 or not counts or not all(type(count) is int and count > 0 for count in counts):
        return []
    gpus, each = visible_gpus(), max(counts)
    groups = [",".join(gpus[first : first + each]) for first in range(0, len(gpus) - each + 1, each)]
    return list(islice(cycle(groups), at_once))


def visible_gpus() -> list[str]:
    """The names of those that this process may use: what ``CUDA_VISIBLE_DEVICES`` says, else all by number."""
    if (named := os.environ.get(VISIBLE)) is not None:  # as CUDA does, up to the first that is none
        return list(takewhile(lambda name: name and not name.startswith("-"), map(str.strip, named.split(","))))
    import torch  # takes seconds, which jobs on CPUs need not spend

    return [str(number) for number in range(torch.cuda.device_count())]


@contextmanager
def seated(folder: Path) -> Iterator[dict[str, str]]:
    """The variables of a job of the sweep in ``folder``, which has the first free seat until the block ends."""
    for number, gpus in enumerate(filter(None, os.environ.get(SEATS, "").split(BETWEEN))):
        with lock(folder / f".seat-{number}", wait=False) as free:
            if free:
                yield {VISIBLE: gpus}
                return
    yield {}
