"""Compares our own step with and without settings that are not defaults, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass

from benchmarks.arms import Arm, ArmFailed, Show, race
from benchmarks.measures import PARTS, Findings, compare
from benchmarks.peers.conversation import STEP
from benchmarks.side_by_side import check_lengths, our_arm, requests, size_of
from benchmarks.workloads import WorkFiles, Workload

VARIANTS = {
    "together": (
        "rollout.engine.cuda_graphs=true",
        "policy.attention=varlen",
        "budget.grpo.microbatch_tokens=65536",
    ),
    "cuda_graphs": ("rollout.engine.cuda_graphs=true",),
    "varlen": ("policy.attention=varlen",),
    "large_microbatches": ("budget.grpo.microbatch_tokens=65536",),
    "fused": ("policy.fused=true",),
    "compiled": ("policy.compiled=true",),
    "liger": ("policy.kernels=liger",),
}
"""Variant → its settings, in the order in which they are measured if time runs out."""
OTHER_TOKENS = 0.02
"""The share by which the number of tokens may differ: a draw can change with the rounding of other kernels."""


@dataclass(frozen=True, kw_only=True)
class WithAndWithout:
    """Measures a workload with and without each of these variants when called, and adds the results to ``found``."""

    workload: Workload
    variants: Sequence[str]
    repeats: int
    found: Findings
    show: Show

    def __call__(self) -> None:
        files = WorkFiles(self.workload)
        self.show("starting ours")
        with closing(our_arm(files)) as plain:
            lengths = plain.request(STEP).tokens["lengths"]
            check_lengths(self.workload, lengths)
            self.found.versions.update(plain.versions)
            self.found.sizes[self.workload.title] = size_of(self.workload, files.prompt_tokens, lengths)
            for name in self.variants:
                try:
                    self._measure(name, plain, files, sum(lengths))
                except ArmFailed as reason:
                    self._leave_out(name, str(reason))

    def _measure(self, name: str, plain: Arm, files: WorkFiles, tokens: int) -> None:
        self.show(f"starting {name}")
        with closing(our_arm(files, name, VARIANTS[name])) as variant:
            written = sum(variant.request(STEP).tokens["lengths"])
            if abs(written - tokens) > OTHER_TOKENS * tokens:
                self._leave_out(name, f"it writes {written} tokens where ours writes {tokens}")
                return
            figures = race([plain, variant], requests(PARTS), warm=[STEP], repeats=self.repeats, show=self.show)
        if name not in figures:
            self._leave_out(name, "its process ended on the way")
            return
        for part in PARTS:
            against, of_variant, without = f"ours without {name}", figures[name][part], figures[plain.name][part]
            self.found.results.append(compare(part, self.workload.title, against, ours=of_variant, theirs=without))

    def _leave_out(self, name: str, reason: str) -> None:
        self.found.notes.append(f"{name} was not measured on {self.workload.title}: {reason}.")
