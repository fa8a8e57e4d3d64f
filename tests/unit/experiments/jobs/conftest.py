"""Finished runs of a study's arms, as run folders that are synced to MLflow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from experiments.jobs.finished import Counted, Mark, Today, counted_runs
from experiments.jobs.study_plan import Study, read_study
from experiments.mlflow_sync import Tracker
from experiments.mlflow_sync.sync import FolderSync

SAMPLES, TOKENS_PER_STEP = 4, 100.0
CURVE = "val/verifier/accuracy"
TODAY = "today"
"""Name of a configuration."""


class StudyRuns:
    """Writes run folders like those of ``experiments.run`` and syncs them to MLflow."""

    def __init__(self, name: str, outputs: Any, tracker: Tracker) -> None:
        self.name = name
        self.outputs = outputs
        self.tracker = tracker
        self.marks = set[Mark]()
        """Marks of today's jobs."""

    def study(self, *, seeds: int = 2, start: Mapping[str, Any] | None = None) -> Study:
        return read_study(self.name, self.content(seeds=seeds, start=start))

    def file(self, folder: Path, *, seeds: int = 2, start: Mapping[str, Any] | None = None) -> Path:
        """Writes the file of the study."""
        path = folder / f"{self.name}.yaml"
        path.write_text(json.dumps(self.content(seeds=seeds, start=start)))
        return path

    def counted(self, study: Study | None = None) -> Counted:
        """The runs of today's configuration and the others."""
        return counted_runs(self.tracker, study or self.study(), Today(self.marks, {}))

    def content(self, *, seeds: int, start: Mapping[str, Any] | None) -> dict[str, Any]:
        arm = {"about": "", "overrides": [], "seeds": seeds}
        return {
            "question": "Is it better?",
            "primary": {"metric": "test/verifier/accuracy", "arm": "better", "baseline": "plain"},
            "curve": CURVE,
            "common": [],
            "start": start,
            "arms": {"better": {**arm, "about": "improved"}, "plain": arm},
            "order": [["better", "plain"]],
            "parallel": 1,
        }

    def add(
        self,
        arm: str,
        seed: int,
        *,
        solved: Sequence[int],
        curve: Mapping[int, float],
        step_seconds: float = 1.0,
        critic_seconds: float | None = None,
        counted: bool = True,
        checkpoint: str | None = None,
        pretrained: str | None = None,
        time: str = "2026-01-01T00-00-00",
        counts: Sequence[int] = (3,),
        finished: bool = True,
        first_problem: int = 0,
        setting: str = "main",
        threads: int | None = None,
        configuration: str = TODAY,
        git_sha: str = "abc",
        siblings: Mapping[int, float] | None = None,
        elsewhere: Mapping[str, float] | None = None,
        unvalidated: int = 0,
        unsampled: int = 0,
        further: Mapping[str, Any] | None = None,
        fingerprint: str | None = None,
        settings: str | None = None,
        made_by: Mapping[str, str] | None = None,
    ) -> None:
        """Adds a run, and syncs it.

        ``solved``: 1 for each solved problem, else 0; a solved one has two correct samples of four, others one.
        ``siblings``: the AUROC among siblings by rollout batch; None: the run values no steps.
        ``elsewhere``: success in other settings, by name.
        ``unvalidated``: number of steps after the last validation.
        ``unsampled``: number of problems without samples.
        ``further``: further keys of its configuration.
        ``made_by``: further keys of the configuration of its stage grpo.
        ``settings``: hash of the settings of its evaluation; None: equal to the fingerprint.
        """
        mark = fingerprint or f"{self.name}-{arm}-{seed}-{configuration}"
        if configuration == TODAY:
            self.marks.add(Mark(arm, str(seed), mark))
        steps = range(1, max(curve) + unvalidated + 1)
        costs = {"train/spent/tokens": {step: step * TOKENS_PER_STEP for step in steps}}
        costs |= {"train/spent/seconds": {step: step * step_seconds for step in steps}}
        costs |= {} if siblings is None else {"train/steps/auroc_siblings": siblings}
        stages = {"grpo": self.outputs.stage("grpo", mark, {CURVE: curve, **costs})}
        stage_config = {**({} if threads is None else {"threads": threads}), **(made_by or {})}
        if stage_config:
            (stages["grpo"] / "config.yaml").write_text(json.dumps(stage_config))
        success = {"test/verifier/accuracy": {0: sum(solved) / len(solved)}, "test/verifier/pass_at_4": {0: 0.75}}
        success |= {f"test/{name}/verifier/accuracy": {0: value} for name, value in (elsewhere or {}).items()}
        stages["evaluate"] = self.outputs.stage("evaluate", mark, success)
        (stages["evaluate"] / "begun.json").write_text(json.dumps({"settings": settings or mark}))
        rows = [
            {
                "setting": setting,
                "problem": str(first_problem + number),
                "status": "ok" if correct else "wrong",
                **({} if number < unsampled else {"samples_correct": f"{1 + correct}/{SAMPLES}"}),
            }
            for number, correct in enumerate(solved)
        ]
        table = stages["evaluate"] / "tables" / "test" / "completions" / "0.json"
        table.parent.mkdir(parents=True)
        table.write_text(
            json.dumps([*rows, {**rows[0], "setting": "another", "problem": "x", "samples_correct": "0/4"}])
        )
        if critic_seconds is not None:
            name = "train/spent/seconds" if counted else "val/critic/loss"
            stages["critic"] = self.outputs.stage("critic", mark, {name: {9: critic_seconds}})
        config = {"git_sha": git_sha, "task": {"counts": list(counts)}, "reward": {"checkpoint": checkpoint}}
        config |= {"policy": {"pretrained": pretrained}, **(further or {})}
        self._record(arm, seed, mark, stages, config, time=time, finished=finished)

    def add_two_arms(self) -> None:
        """The better arm first spends ten seconds on a critic; its steps take half as long."""
        for seed in (0, 1):
            self.add("plain", seed, solved=[0, 1, 0, seed], curve={0: 0.2, 10: 0.2}, step_seconds=2.0)
            self.add("better", seed, solved=[1, 1, 0, 1], curve={0: 0.2, 5: 0.4, 10: 0.4}, critic_seconds=10.0)

    def _record(
        self,
        arm: str,
        seed: int,
        mark: str,
        stages: Mapping[str, Path],
        config: Mapping[str, Any],
        *,
        time: str,
        finished: bool,
    ) -> None:
        run = self.outputs.root / "runs" / self.name / f"{time}-{arm}-{seed}"
        run.mkdir(parents=True)
        (run / "config.yaml").write_text(json.dumps({"seed": seed, "arm": arm, **config}))
        entries = {stage: {"folder": str(f), "fingerprint": mark, "reused": False} for stage, f in stages.items()}
        (run / "stages.json").write_text(json.dumps(entries))
        if finished:
            (run / "summary.json").write_text("{}\n")
        FolderSync(run, self.tracker).send(live=False)


@pytest.fixture
def runs(request: pytest.FixtureRequest, outputs: Any, tracker: Tracker) -> StudyRuns:
    """Runs of a study that is named after the test."""
    return StudyRuns(request.node.name, outputs, tracker)
