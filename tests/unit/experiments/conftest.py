"""Run folders as experiments write them, and one real MLflow for all tests: creating its SQLite file takes seconds."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

from experiments.mlflow_sync import Tracker
from experiments.run_folder.logger import format_line
from experiments.run_folder.reader import METRICS_FILE, Metric

SAMPLED = "verifier/accuracy_sampled"
STARTED_AT = 1_700_000_000.0


class Outputs:
    """Builds an outputs/ folder."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def log(self, folder: Path, name: str, history: Mapping[int, float]) -> None:
        """Appends step → value, with one second between steps."""
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / METRICS_FILE).open("a", encoding="utf-8") as file:
            file.writelines(format_line(Metric(step, name, v, STARTED_AT + step)) for step, v in history.items())

    def table(self, folder: Path, name: str, rows: Sequence[Mapping[str, object]], *, step: int) -> None:
        """Writes a table as a run's logger does."""
        path = folder / "tables" / name / f"{step}.json"
        path.parent.mkdir(parents=True)
        path.write_text(json.dumps(rows))

    def stage(self, stage: str, fingerprint: str, metrics: Mapping[str, Mapping[int, float]]) -> Path:
        """Creates a finished stage; a second call with the same fingerprint returns the existing stage."""
        folder = self.root / "stages" / stage / fingerprint
        if not folder.exists():
            for name, history in metrics.items():
                self.log(folder, name, history)
            (folder / "config.yaml").write_text(f"stage: {stage}\n")
            (folder / "result.json").write_text("{}\n")
        return folder

    def run(
        self,
        name: str,
        *,
        seed: int,
        final: float,
        time: str = "2026-01-01T00-00-00",
        weight: float = 0.2,
        reward: str = "critic",
        sweep: str | None = None,
    ) -> Path:
        """Creates a finished experiment of two stages in which sampled success rose from 0.2 to ``final``."""
        fingerprint = f"{name}{seed}{final:.6f}{weight}"
        rise = {step: 0.2 + (final - 0.2) * step / 20 for step in (0, 10, 20)}
        ends = {f"test/{SAMPLED}": {0: final}, f"start/{SAMPLED}": {0: 0.2}}
        stages = {
            "grpo": self.stage("grpo", fingerprint, {f"val/{SAMPLED}": rise}),
            "evaluate": self.stage("evaluate", fingerprint, ends),
        }
        run = self.root / "runs" / name / f"{time}-{seed}"
        run.mkdir(parents=True)
        config = f"seed: {seed}\nscale: laptop\nfamily: llama\ngit_sha: abc\nreward:\n  weight: {weight}\n"
        (run / "config.yaml").write_text(config)
        (run / "choices.json").write_text(json.dumps({"reward": reward, "objective": "grpo", "debug": None}))
        entries = {s: {"folder": str(f), "fingerprint": fingerprint, "reused": False} for s, f in stages.items()}
        (run / "stages.json").write_text(json.dumps(entries))
        if sweep is not None:
            (run / "sweep.json").write_text(json.dumps({"sweep": sweep, "overrides": "seed=0,1"}))
        (run / "summary.json").write_text("{}\n")
        return run


@pytest.fixture
def outputs(tmp_path: Path) -> Outputs:
    return Outputs(tmp_path / "outputs")


@pytest.fixture(scope="session")
def tracker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Tracker]:
    """Yields MLflow on a SQLite file; each test uses its own experiment names."""
    with pytest.MonkeyPatch.context() as patch:
        address = f"sqlite:///{tmp_path_factory.mktemp('mlruns') / 'mlflow.db'}"
        patch.setenv("MLFLOW_TRACKING_URI", address)
        yield Tracker(address)
