"""How far a running job is, read from its run folder: the stage, its step and the newest primary metric."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from experiments.run_folder import complete_lines, read_config, stage_folders
from experiments.sweep.metric import Found, first_of


class Progress:
    """Follows one run; each look reads only what was written since the last one."""

    def __init__(self, run: Path) -> None:
        self._run = run
        config = read_config(run)
        self._budget: Mapping[str, Any] = config.get("budget") or {}
        reward = config.get("reward")
        self._warmup = reward.get("warmup_steps") or 0 if isinstance(reward, dict) else 0
        self._read: dict[Path, int] = {}
        self._metrics: dict[str, float] = {}
        self._step = 0
        self.stage = "starting"

    def look(self) -> None:
        for stage, folder, _ in stage_folders(self._run):
            if stage != self.stage and folder not in self._read:
                self.stage, self._step = stage, 0
            self._follow(folder)

    def _follow(self, folder: Path) -> None:
        for metric, end in complete_lines(folder, start=self._read.setdefault(folder, 0)):
            self._read[folder] = end
            self._metrics[metric.name] = metric.value
            self._step = max(self._step, metric.step)

    @property
    def where(self) -> str:
        """``grpo 12/60``; a stage without steps by its name."""
        steps = (self._budget.get(self.stage) or {}).get("steps")
        if not steps:
            return self.stage
        # what is logged counts rollout batches, those before the policy's first update too
        return f"{self.stage} {self._step}/{steps + self._warmup * (self.stage == 'grpo')}"

    @property
    def metric(self) -> Found | None:
        return first_of(self._metrics)
