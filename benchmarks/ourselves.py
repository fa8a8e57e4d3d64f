"""Our own arm, and what compares it with itself or its memory: prompts shared or not, decoding, a size doubled."""

from __future__ import annotations

import sys

from benchmarks.arm import Arm, Skipped
from benchmarks.files import WorkFiles
from benchmarks.findings import Findings, Tell
from benchmarks.measures import MEMORY, OWN_PREFIX, ROOFLINE, scaling_line
from benchmarks.peers.conversation import STEP
from benchmarks.race import arms_that_close, race
from benchmarks.result import faster
from benchmarks.workloads import BASE, DOUBLED, Workload


def our_arm(files: WorkFiles, name: str = "ours") -> Arm:
    command = [sys.executable, "-m", "benchmarks.ours", str(files.for_us())]
    return Arm(name, command, log=files.log("ours"))


def shared_prefix(ours: Arm, workload: Workload, repeats: int, found: Findings) -> None:
    """Forward and backward of all completions with each prompt once, and with a prompt for each completion."""
    try:
        ours.ask("shared_prefix")
        pairs = [ours.ask("shared_prefix").seconds for _ in range(repeats)]
    except Skipped as reason:
        found.notes.append(f"shared_prefix was not measured: {reason}.")
        return
    shared, own = ([pair[name] for pair in pairs] for name in ("shared_prefix", "own_prefix"))
    found.results.append(faster("shared_prefix", workload.title, OWN_PREFIX, ours=shared, theirs=own))


def decode_roofline(ours: Arm, workload: Workload, repeats: int, found: Findings) -> None:
    """The fraction of the memory roofline that decoding reaches: the seconds its bytes need over those it takes."""
    try:
        ours.ask(ROOFLINE)
        pairs = [ours.ask(ROOFLINE).seconds for _ in range(repeats)]
    except Skipped as reason:
        found.notes.append(f"{ROOFLINE} was not measured on {workload.title}: {reason}.")
        return
    taken, needed = ([pair[name] for pair in pairs] for name in ("decode", "roofline"))
    found.results.append(faster(ROOFLINE, workload.title, MEMORY, ours=taken, theirs=needed))


def scaling(*, repeats: int, found: Findings, tell: Tell) -> None:
    """The whole step, and the same with one size doubled."""
    sizes = [BASE, *DOUBLED.values()]
    with arms_that_close() as arms:
        for workload in sizes:
            tell(f"starting {workload.key}")
            arms.append(our_arm(WorkFiles(workload), name=workload.key))
        asked = {STEP: [workload.key for workload in sizes]}
        seconds = race(arms, asked, warm=[], repeats=repeats, tell=tell)
    for doubled, workload in DOUBLED.items():
        base, twice = (seconds[key]["whole_step"] for key in (BASE.key, workload.key))
        found.results.append(faster(*scaling_line(doubled), ours=base, theirs=twice))
