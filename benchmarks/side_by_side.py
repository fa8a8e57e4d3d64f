"""One workload against every peer: the arms come up, are held to the same work, and race."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arms import Arm, ArmFailed, Seconds, Skipped, Tell, arms_that_close, race
from benchmarks.measures import (
    MEMORY,
    OWN_PREFIX,
    PARTS,
    PEERS,
    PREFIX_WORKLOAD,
    ROOFLINE,
    Findings,
    Peer,
    Result,
    faster,
    scaling_line,
)
from benchmarks.peers.conversation import STEP
from benchmarks.workloads import BASE, DOUBLED, SHORTEST, WorkFiles, Workload


class UnequalWork(ValueError):
    """Two arms do not do the same work; the message says what differs."""


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Called, it adds to ``found`` what the chosen measures give on one workload."""

    workload: Workload
    measures: Collection[str]
    repeats: int
    python: Path | None
    """The peers' interpreter; None: there is none, so only we run."""
    found: Findings
    tell: Tell

    def __call__(self) -> None:
        files = WorkFiles(self.workload)
        with arms_that_close() as arms:
            self.tell("starting ours")
            arms.append(our_arm(files))
            tokens = arms[0].ask(STEP).tokens
            check_lengths(self.workload, tokens["lengths"])
            self.found.versions.update(arms[0].versions)
            self.found.sizes[self.workload.title] = size_of(self.workload, files.prompt_tokens, tokens["lengths"])
            peers = [peer for peer in PEERS if set(self.measures) & set(peer.parts) and self.python]
            peers = [peer for peer in peers if self._joins(peer, arms, files, tokens)]
            asked = requests(self.measures, peers)
            seconds = race(arms, asked, warm=[STEP], repeats=self.repeats, tell=self.tell)
            self._add(peers, seconds)
            if ROOFLINE in self.measures:
                self.tell(ROOFLINE)
                decode_roofline(arms[0], self.workload, self.repeats, self.found)
            if self.workload.key.startswith(PREFIX_WORKLOAD) and "shared_prefix" in self.measures:
                self.tell("shared_prefix")
                shared_prefix(arms[0], self.workload, self.repeats, self.found)

    def _joins(self, peer: Peer, arms: list[Arm], files: WorkFiles, tokens: Mapping[str, Any]) -> bool:
        """Start the peer and hold it to our work; a note where that does not succeed."""
        self.tell(f"starting {peer.name}")
        log = files.log(peer.module.rpartition(".")[2])
        command = [str(self.python), "-m", peer.module, str(files.for_peers(tokens["lengths"]))]
        try:
            arms.append(Arm(peer.name, command, log=log))
            check_same_work(tokens, arms[-1].ask(STEP).tokens)
        except ArmFailed:
            self._leave_out(peer, f"its process failed, see .bench/{self.workload.key}/{log.name}")
            return False
        except UnequalWork as difference:
            self._leave_out(peer, str(difference))
            return False
        self.found.versions.update(arms[-1].versions)
        return True

    def _add(self, peers: Sequence[Peer], seconds: Seconds) -> None:
        for peer in peers:
            if peer.name in seconds:
                self.found.results += compared(self.workload, peer, seconds, self.measures)
            else:
                self._leave_out(peer, "its process ended on the way")

    def _leave_out(self, peer: Peer, reason: str) -> None:
        self.found.notes.append(f"{peer.name} was not measured on {self.workload.title}: {reason}.")


def requests(measures: Collection[str], peers: Sequence[Peer]) -> dict[str, list[str]]:
    """What is asked of whom for these measures: request → names of peers. A step gives all its parts at once."""
    asked: dict[str, list[str]] = {}
    for peer in peers:
        for part in peer.parts:
            names = asked.setdefault("scoring" if part == "scoring" else STEP, []) if part in measures else None
            if names is not None and peer.name not in names:
                names.append(peer.name)
    return asked


def compared(workload: Workload, peer: Peer, seconds: Seconds, measures: Collection[str]) -> Iterator[Result]:
    for part in PARTS:
        if part in measures and part in peer.parts:
            ours, theirs = seconds["ours"][part], seconds[peer.name][part]
            yield faster(part, workload.title, peer.name, ours=ours, theirs=theirs)


def check_same_work(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    """Refuse to compare unequal work.

    Raises:
        UnequalWork: where the arms have another number of prompt or completion tokens.
    """
    for kind in ("prompt", "completion"):
        if ours[kind] != theirs[kind]:
            raise UnequalWork(f"it has {theirs[kind]} {kind} tokens where we have {ours[kind]}")


def check_lengths(workload: Workload, lengths: Sequence[int]) -> None:
    """Refuse completions that are shorter than the workload promises.

    Raises:
        UnequalWork: naming both lengths.
    """
    shortest = SHORTEST if workload.uneven else workload.max_tokens
    if min(lengths) < shortest:
        raise UnequalWork(
            f"{workload.title}: a completion has {min(lengths)} tokens, at least {shortest} were promised"
        )


def size_of(workload: Workload, prompt_tokens: int, lengths: Sequence[int]) -> str:
    """``8 prompts of 32 tokens × 8 completions of 128 tokens``."""
    uneven = f"{min(lengths)} to {max(lengths)} tokens, {sum(lengths) / len(lengths):.0f} on average"
    completions = uneven if workload.uneven else f"{lengths[0]} tokens"
    return f"{workload.prompts} prompts of {prompt_tokens} tokens × {workload.group_size} completions of {completions}"


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
