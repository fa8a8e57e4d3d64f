"""What an arm reads: the policy in a folder and the work as JSON; and where it writes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.models import VOCABULARY
from benchmarks.policy import save_policy
from benchmarks.workloads import END_SHARE, Workload, stated
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.tasks.countdown import CountdownProblem
from experiments.system.files import write_json

FOLDER = Path(".bench").resolve()
"""The peers' environment and the files of every workload; git ignores it."""
LEARNING_RATE = 1e-12
"""The update is done in full, and no weight of ordinary size changes by it: all repeats see the same policy."""


class WorkFiles:
    """The files of one workload."""

    def __init__(self, workload: Workload, folder: Path = FOLDER) -> None:
        self.workload = workload
        self.folder = folder / workload.key
        self.problems = workload.problems()
        shape = workload.shape
        tokenizer = train_tokenizer(tokenizer_corpus(), vocab_size=VOCABULARY, kind=shape.kind)
        self.bos = str(tokenizer.bos_token)
        encoded = [tokenizer(problem.prompt)["input_ids"] for problem in self.problems]
        self.prompt_tokens = 1 + max(len(ids) for ids in encoded)  # pyright: ignore[reportArgumentType]
        """Of the longest prompt, the token that begins every text included."""
        end_share = END_SHARE if workload.uneven else 0.0
        save_policy(self.folder / "policy", tokenizer, shape=shape, end_share=end_share)

    def for_us(self) -> Path:
        """Our own arm's: problems, and budgets in tokens that are the peer's budgets in rows."""
        longest = self.prompt_tokens + self.workload.max_tokens
        return self._write(
            "ours.json",
            problems=[asdict(problem) for problem in self.problems],
            microbatch_tokens=self.workload.microbatch_rows * longest,
            batch_tokens=len(self.problems) * self.workload.group_size * longest,
        )

    def for_peers(self, lengths: Sequence[int]) -> Path:
        """Prompts as text with the token that begins ours; of completions that end by themselves the lengths."""
        return self._write(
            "peers.json",
            prompts=[self.bos + problem.prompt for problem in self.problems],
            lengths=list(lengths) if self.workload.uneven else None,
            microbatch_rows=self.workload.microbatch_rows,
            scratch=str(self.folder / "scratch"),
        )

    def log(self, name: str) -> Path:
        """Where an arm's other output goes."""
        return self.folder / f"{name}.log"

    def _write(self, name: str, **content: Any) -> Path:
        path = self.folder / name
        common = {
            "policy": str(self.folder / "policy"),
            "group_size": self.workload.group_size,
            "max_tokens": self.workload.max_tokens,
            "learning_rate": LEARNING_RATE,
            "device": self.workload.device,
        }
        write_json(path, {**common, **content})
        return path


def tokenizer_corpus() -> list[str]:
    """The same for every workload, so that all have one tokenizer."""
    return [CountdownProblem((21, 16, 17, 26), 46).prompt, stated((21, 16, 17, 26), 46)]
