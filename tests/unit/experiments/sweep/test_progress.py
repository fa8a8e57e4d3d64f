from __future__ import annotations

import json
from pathlib import Path

from experiments.run_folder import Metric
from experiments.run_folder.logger import format_line
from experiments.sweep.progress import Progress


def entry(folder: Path, *, reused: bool) -> dict[str, object]:
    return {"folder": str(folder), "fingerprint": folder.name, "reused": reused}


def log(folder: Path, *metrics: tuple[int, str, float]) -> None:
    folder.mkdir(exist_ok=True)
    with (folder / "metrics.jsonl").open("a") as file:
        file.writelines(format_line(Metric(step, name, value, 0.0)) for step, name, value in metrics)


def test_the_newest_stage_its_step_and_metric_are_followed(tmp_path: Path) -> None:
    run, grpo, critic = (tmp_path / name for name in ("run", "grpo", "critic"))
    run.mkdir()
    (run / "config.yaml").write_text("budget: {critic: {steps: 9}, grpo: {steps: 60}, evaluate: {problems: 4}}\n")
    progress = Progress(run)
    progress.look()
    assert (progress.where, progress.metric) == ("starting", None)

    log(critic, (9, "val/oracle/auroc_depth1", 0.75))
    stages = {"critic": entry(critic, reused=True), "grpo": entry(grpo, reused=False)}
    (run / "stages.json").write_text(json.dumps(stages))
    progress.look()
    assert progress.where == "grpo 0/60", "the steps of the stage before are not its own"

    log(grpo, (12, "train/reward/verifier", 0.1), (10, "val/verifier/accuracy_sampled", 0.25))
    progress.look()
    assert progress.where == "grpo 12/60"
    assert str(progress.metric) == "0.250 val accuracy_sampled"

    log(grpo, (13, "val/verifier/accuracy_sampled", 0.5))
    progress.look()
    assert progress.where == "grpo 13/60"
    assert str(progress.metric) == "0.500 val accuracy_sampled"

    (run / "stages.json").write_text(json.dumps(stages | {"evaluate": entry(tmp_path / "evaluate", reused=False)}))
    progress.look()
    assert progress.where == "evaluate", "a stage without steps"


def test_batches_in_which_only_the_reward_learns_are_counted(tmp_path: Path) -> None:
    run, grpo = tmp_path / "run", tmp_path / "grpo"
    run.mkdir()
    (run / "config.yaml").write_text("budget: {grpo: {steps: 100}}\nreward: {warmup_steps: 10}\n")
    (run / "stages.json").write_text(json.dumps({"grpo": entry(grpo, reused=False)}))
    log(grpo, (110, "train/reward/verifier", 0.1))
    progress = Progress(run)
    progress.look()
    assert progress.where == "grpo 110/110"
