"""Measures one workload in every arm: starts the arms, checks that they do the same work, and alternates them."""

from __future__ import annotations

import sys
from collections.abc import Collection, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.arms import Arm, ArmFailed, Figures, Show, Skipped, race
from benchmarks.measures import (
    AT_PEAK,
    PAIRS,
    PARTS,
    PEAK,
    PREFIX_WORKLOAD,
    SCORING,
    TRL_TRAINER,
    UPDATE_ROOFLINE,
    VLLM,
    Findings,
    Peer,
    compare,
)
from benchmarks.peers.conversation import STEP
from benchmarks.vllm_server import NotUp, served
from benchmarks.workloads import SHORTEST, WorkFiles, Workload

SERVER_SECONDS = 900
"""Time limit for the start of a vLLM server."""


class UnequalWork(ValueError):
    """Raised if our arm does not do the work of the workload; the message names the difference."""


class LeftOut(RuntimeError):
    """Raised if a peer cannot be measured; the message is the reason."""


@dataclass(frozen=True, kw_only=True)
class SideBySide:
    """Runs the chosen measures on one workload when called, and adds the results to ``found``."""

    workload: Workload
    measures: Collection[str]
    repeats: int
    python: Path | None
    """The interpreter of TRL; None: it does not run."""
    vllm: str | None
    """The command that ``serve`` is appended to; None: no arm samples from a server."""
    found: Findings
    show: Show

    def __call__(self) -> None:
        files, title = WorkFiles(self.workload), self.workload.title
        with ExitStack() as running:
            self.show("starting ours")
            arms = [running.enter_context(closing(our_arm(files)))]
            tokens = arms[0].request(STEP).tokens
            check_lengths(self.workload, tokens["lengths"])
            self.found.versions.update(arms[0].versions)
            self.found.sizes[title] = size_of(self.workload, files.prompt_tokens, tokens["lengths"])
            peers = []
            for peer in self._wanted():
                try:
                    arms.append(self._join(peer, files, tokens, running))
                    peers.append(peer)
                except LeftOut as reason:
                    self._leave_out(peer, str(reason))
            figures = race(arms, requests(self.measures), warm=[STEP], repeats=self.repeats, show=self.show)
            self._compare(peers, figures)
            for measure in PAIRS:
                long = self.workload.key.startswith(PREFIX_WORKLOAD)
                if measure in self.measures and (long or measure != "shared_prefix"):
                    self.show(measure)
                    measure_pair(measure, arms[0], self.workload, self.repeats, self.found)

    def _compare(self, peers: Sequence[Peer], figures: Figures) -> None:
        title, results = self.workload.title, self.found.results
        for peer in peers:
            if peer.name not in figures:
                self._leave_out(peer, "its process ended on the way")
                continue
            ours, theirs = figures["ours"], figures[peer.name]
            for part in (part for part in PARTS if part in self.measures):
                results.append(compare(part, title, peer.name, ours=ours[part], theirs=theirs[part]))
        if UPDATE_ROOFLINE in self.measures:
            ours = figures["ours"]
            results.append(compare(UPDATE_ROOFLINE, title, PEAK, ours=ours["update"], theirs=ours[AT_PEAK]))

    def _wanted(self) -> list[Peer]:
        """Returns the peers that can run, if one of the measures is of them."""
        there = [*([TRL_TRAINER] if self.python else ()), *([VLLM] if self.vllm else ())]
        return there if set(self.measures) & set(PARTS) else []

    def _join(self, peer: Peer, files: WorkFiles, tokens: Mapping[str, Any], running: ExitStack) -> Arm:
        """Starts a peer. Raises LeftOut if it, or its server, does not start or has other token counts than ours."""
        log = files.folder / f"{peer.name.split()[0].lower()}.log"
        try:
            command = self._command(peer, files, tokens["lengths"], running)
            self.show(f"starting {peer.name}")
            arm = running.enter_context(closing(Arm(peer.name, command, log=log)))
            theirs = arm.request(STEP).tokens
        except ArmFailed:
            raise LeftOut(f"its process failed, see .bench/{self.workload.key}/{log.name}") from None
        for kind in ("prompt", "completion"):
            if tokens[kind] != theirs[kind]:
                raise LeftOut(f"it has {theirs[kind]} {kind} tokens where we have {tokens[kind]}")
        self.found.versions.update(arm.versions)
        return arm

    def _command(self, peer: Peer, files: WorkFiles, lengths: Sequence[int], running: ExitStack) -> list[str]:
        """Returns the command of a peer, after starting its server if it needs one."""
        if peer is not VLLM:
            return [str(self.python), "-m", peer.module, str(files.for_peers(lengths))]
        self.show("starting vLLM")
        policy, device, log = files.folder / "policy", self.workload.device, files.folder / "vllm_server.log"
        try:
            server = served(str(self.vllm), policy, device=device, log=log, seconds=SERVER_SECONDS)
            url, _ = running.enter_context(server)
        except (NotUp, OSError) as reason:
            raise LeftOut(str(reason)) from None
        overrides = ["rollout=vllm", f"rollout.engine.url={url}", f"rollout.engine.weights_folder={files.folder}/sent"]
        return [sys.executable, "-m", peer.module, str(files.for_us()), *overrides]

    def _leave_out(self, peer: Peer, reason: str) -> None:
        self.found.notes.append(f"{peer.name} was not measured on {self.workload.title}: {reason}.")


def requests(measures: Collection[str]) -> list[str]:
    """Returns the requests of these measures to every arm. One step gives all parts but scoring at once."""
    step = {*PARTS, UPDATE_ROOFLINE} - {SCORING}
    return [*([STEP] if step & set(measures) else []), *([SCORING] if SCORING in measures else [])]


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


def our_arm(files: WorkFiles, name: str = "ours", overrides: Sequence[str] = ()) -> Arm:
    """Starts our own arm, with the name and the overrides of a variant if they are given."""
    command = [sys.executable, "-m", "benchmarks.ours", str(files.for_us()), *overrides]
    return Arm(name, command, log=files.folder / f"{name}.log")


def measure_pair(measure: str, ours: Arm, workload: Workload, repeats: int, found: Findings) -> None:
    """Measures two alternating times of our arm alone, see ``PAIRS``; adds a note if the arm skips the measure."""
    mine, other, against = PAIRS[measure]
    try:
        ours.request(measure)
        pairs = [ours.request(measure).figures for _ in range(repeats)]
    except Skipped as reason:
        found.notes.append(f"{measure} was not measured on {workload.title}: {reason}.")
        return
    first, second = ([pair[name] for pair in pairs] for name in (mine, other))
    found.results.append(compare(measure, workload.title, against, ours=first, theirs=second))
