"""Measures one workload in every arm: starts the arms, checks that they do the same work, and alternates them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arms import Arm, ArmFailed, Figures, Skipped, Tell, arms_that_close, race
from benchmarks.measures import (
    AT_PEAK,
    PAIRS,
    PARTS,
    PEAK,
    PEERS,
    PREFIX_WORKLOAD,
    UPDATE_ROOFLINE,
    VLLM,
    Findings,
    Peer,
    compare,
)
from benchmarks.peers.conversation import STEP
from benchmarks.vllm_server import NotUp, served
from benchmarks.workloads import BASE, DOUBLED, SHORTEST, WorkFiles, Workload

SERVER_SECONDS = 900
"""Time limit for the start of a vLLM server."""


class UnequalWork(ValueError):
    """Raised if our arm does not do the work of the workload; the message names the difference."""


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Runs the chosen measures on one workload when called, and adds the results to ``found``."""

    workload: Workload
    measures: Collection[str]
    repeats: int
    python: Path | None
    """The interpreter of TRL and transformers; None: they do not run."""
    vllm: str | None
    """The command that ``serve`` is appended to; None: no arm samples from a server."""
    found: Findings
    tell: Tell

    def __call__(self) -> None:
        files, title = WorkFiles(self.workload), self.workload.title
        with ExitStack() as servers, arms_that_close() as arms:
            self.tell("starting ours")
            arms.append(our_arm(files))
            tokens = arms[0].ask(STEP).tokens
            check_lengths(self.workload, tokens["lengths"])
            self.found.versions.update(arms[0].versions)
            self.found.sizes[title] = size_of(self.workload, files.prompt_tokens, tokens["lengths"])
            peers = []
            for peer in (peer for peer in (*PEERS, VLLM) if set(self.measures) & set(peer.parts)):
                command = self._command(peer, files, tokens, servers)
                if command is not None and self._joins(peer, command, arms, files, tokens):
                    peers.append(peer)
            asked = requests(self.measures, peers)
            figures = race(arms, asked, warm=[STEP], repeats=self.repeats, tell=self.tell)
            self._compare(peers, figures)
            for measure in PAIRS:
                long = self.workload.key.startswith(PREFIX_WORKLOAD)
                if measure in self.measures and (long or measure != "shared_prefix"):
                    self.tell(measure)
                    measure_pair(measure, arms[0], self.workload, self.repeats, self.found)

    def _compare(self, peers: Sequence[Peer], figures: Figures) -> None:
        """Adds the results of all peers."""
        title, results = self.workload.title, self.found.results
        for peer in peers:
            if peer.name not in figures:
                self._leave_out(peer, "its process ended on the way")
                continue
            ours, theirs = figures["ours"], figures[peer.name]
            if peer.our_update:
                both = zip(theirs["generation"], ours["update"], strict=True)
                theirs["whole_step"] = [drawn + rest for drawn, rest in both]
            for part in (part for part in PARTS if part in self.measures and part in peer.parts):
                results.append(compare(part, title, peer.name, ours=ours[part], theirs=theirs[part]))
        if UPDATE_ROOFLINE in self.measures:
            ours = figures["ours"]
            results.append(compare(UPDATE_ROOFLINE, title, PEAK, ours=ours["update"], theirs=ours[AT_PEAK]))

    def _command(self, peer: Peer, files: WorkFiles, tokens: Mapping[str, Any], servers: ExitStack) -> list[str] | None:
        """Returns the command of a peer, after starting its server if it needs one; None if it does not take part."""
        if peer is not VLLM:
            work = str(files.for_peers(tokens["lengths"]))
            return [str(self.python), "-m", peer.module, work] if self.python else None
        if self.vllm is None:
            return None
        self.tell("starting vLLM")
        policy, device, log = files.folder / "policy", self.workload.device, files.folder / "vllm_server.log"
        server = served(self.vllm, policy, device=device, log=log, seconds=SERVER_SECONDS)
        try:
            url, _ = servers.enter_context(server)
        except (NotUp, OSError) as reason:
            self._leave_out(peer, str(reason))
            return None
        overrides = ["rollout=vllm", f"rollout.engine.url={url}", f"rollout.engine.weights_folder={files.folder}/sent"]
        return [sys.executable, "-m", peer.module, str(files.for_us()), *overrides]

    def _joins(
        self, peer: Peer, command: Sequence[str], arms: list[Arm], files: WorkFiles, tokens: Mapping[str, Any]
    ) -> bool:
        """Starts a peer and checks that it has our token counts. Adds a note and returns False if either fails."""
        self.tell(f"starting {peer.name}")
        log = files.folder / f"{peer.name.split()[0].lower()}.log"
        try:
            arms.append(Arm(peer.name, command, log=log))
            theirs = arms[-1].ask(STEP).tokens
        except ArmFailed:
            self._leave_out(peer, f"its process failed, see .bench/{self.workload.key}/{log.name}")
            return False
        for kind in ("prompt", "completion"):
            if tokens[kind] != theirs[kind]:
                self._leave_out(peer, f"it has {theirs[kind]} {kind} tokens where we have {tokens[kind]}")
                return False
        self.found.versions.update(arms[-1].versions)
        return True

    def _leave_out(self, peer: Peer, reason: str) -> None:
        self.found.notes.append(f"{peer.name} was not measured on {self.workload.title}: {reason}.")


def requests(measures: Collection[str], peers: Sequence[Peer]) -> dict[str, list[str]]:
    """Returns request → names of peers for these measures. One step gives all parts but scoring at once."""
    asked: dict[str, list[str]] = {STEP: []} if UPDATE_ROOFLINE in measures else {}
    for peer in peers:
        parts = set(peer.parts).intersection(measures)
        if parts - {"scoring"}:
            asked.setdefault(STEP, []).append(peer.name)
        if "scoring" in parts:
            asked.setdefault("scoring", []).append(peer.name)
    return asked


def check_lengths(workload: Workload, lengths: Sequence[int]) -> None:
    """Raises UnequalWork for completions shorter than those of the workload, with both lengths in the message."""
    shortest = SHORTEST if workload.uneven else workload.max_tokens
    if min(lengths) < shortest:
        raise UnequalWork(
            f"{workload.title}: a completion has {min(lengths)} tokens, at least {shortest} were promised"
        )


def size_of(workload: Workload, prompt_tokens: int, lengths: Sequence[int]) -> str:
    """Returns ``8 prompts of 32 tokens × 8 completions of 128 tokens``."""
    uneven = f"{min(lengths)} to {max(lengths)} tokens, {sum(lengths) / len(lengths):.0f} on average"
    completions = uneven if workload.uneven else f"{lengths[0]} tokens"
    return f"{workload.prompts} prompts of {prompt_tokens} tokens × {workload.group_size} completions of {completions}"


def our_arm(files: WorkFiles, name: str = "ours") -> Arm:
    command = [sys.executable, "-m", "benchmarks.ours", str(files.for_us())]
    return Arm(name, command, log=files.folder / "ours.log")


def measure_pair(measure: str, ours: Arm, workload: Workload, repeats: int, found: Findings) -> None:
    """Measures two alternating times of our arm alone, see ``PAIRS``; adds a note if the arm skips the measure."""
    mine, other, against = PAIRS[measure]
    try:
        ours.ask(measure)
        pairs = [ours.ask(measure).figures for _ in range(repeats)]
    except Skipped as reason:
        found.notes.append(f"{measure} was not measured on {workload.title}: {reason}.")
        return
    first, second = ([pair[name] for pair in pairs] for name in (mine, other))
    found.results.append(compare(measure, workload.title, against, ours=first, theirs=second))


def scaling(*, repeats: int, found: Findings, tell: Tell) -> None:
    """Compares our whole step with the same step after one size is doubled."""
    sizes = [BASE, *DOUBLED.values()]
    with arms_that_close() as arms:
        for workload in sizes:
            tell(f"starting {workload.key}")
            arms.append(our_arm(WorkFiles(workload), name=workload.key))
        asked = {STEP: [workload.key for workload in sizes]}
        seconds = race(arms, asked, warm=[], repeats=repeats, tell=tell)
    for doubled, workload in DOUBLED.items():
        if missing := [key for key in (BASE.key, workload.key) if key not in seconds]:
            found.notes.append(f"scaling/{doubled} was not measured: {missing[0]} ended before its last step.")
            continue
        base, twice = (seconds[key]["whole_step"] for key in (BASE.key, workload.key))
        against = "ourselves, with that doubled"
        found.results.append(compare(f"scaling/{doubled}", BASE.title, against, ours=base, theirs=twice))
