"""The process of a sweep: which jobs it expects, which are done already, and the summary after them."""

from __future__ import annotations

import csv
import json
import re
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hydra import compose
from joblib import cpu_count
from omegaconf import OmegaConf
from rich.console import Console

from experiments import sweep as sweeping
from experiments.jobs.job import Job, State, write_job
from experiments.jobs.progress import LiveJobs, label, varying
from experiments.schema import composing
from experiments.stages.plan import plan_stages
from experiments.sweep import SweepWatch, at_once, expected_jobs, mark_done, runs_here, summarise, wrong_direction
from experiments.system.files import lock, write_json

SAMPLED = "test/verifier/accuracy_sampled"


def composed(*overrides: str) -> Any:
    with composing():
        return compose("config", [*overrides], return_hydra_config=True)


def test_expected_jobs_combine_preset_and_command_line_overrides() -> None:
    with composing():
        config = compose("config", ["experiment=clipo_laptop", "sweep=fixed_head"], return_hydra_config=True)
        config.hydra.overrides.task = ["seed=0,1", "stages=[warm_start,grpo]"]
        jobs = expected_jobs(config)
    assert [job.number for job in jobs] == [0, 1, 2, 3]
    keys = varying(jobs)
    assert keys == ["reward.trainable", "seed"], "what all jobs share is no part of their name"
    assert [label(job, keys) for job in jobs] == [
        *("reward.trainable=True seed=0", "reward.trainable=True seed=1"),
        *("reward.trainable=False seed=0", "reward.trainable=False seed=1"),
    ]
    optuna = OmegaConf.create({"hydra": {"sweeper": {"_target_": "elsewhere.OptunaSweeper"}}})
    assert expected_jobs(optuna) == [], "it looks for values as it goes"


def test_objective_sweep_composes_distinct_methods() -> None:
    """The preset has GRPO, GSPO, DAPO and GMPO, each with and without CLIPO; overrides add Dr. GRPO and CISPO."""
    with composing():
        config = compose("config", ["experiment=clipo_laptop", "sweep=objective"], return_hydra_config=True)
        config.hydra.overrides.task = ["experiment=clipo_laptop", "seed=0,1,2"]
        usual = expected_jobs(config)
        config.hydra.overrides.task += ["objective=grpo,gspo,dapo,gmpo,dr_grpo,cispo"]
        jobs = expected_jobs(config)
        composed_jobs = (compose("config", [*job.overrides]) for job in jobs if job.values["seed"] == "0")
        methods = {
            (one.objective._target_, OmegaConf.to_yaml(one.objective), one.reward._target_.rpartition(".")[2])
            for one in composed_jobs
        }
    assert (len(usual), len(jobs), len(methods)) == (3 * 2 * 4, 3 * 2 * 6, 2 * 6)
    assert {job.values["objective"] for job in usual} == {"grpo", "gspo", "dapo", "gmpo"}
    assert {reward for *_, reward in methods} == {"CLIPOReward", "VerifierReward"}


@pytest.mark.parametrize(
    ("launcher", "jobs", "here", "expected"),
    [
        (["joblib", 4], 3, True, 3),
        (["joblib", -1], 1000, True, cpu_count()),
        (["joblib", 3], 0, True, 3),
        (["basic"], 8, True, 1),
        (["submitit_slurm"], 8, False, 1),
    ],
)
def test_launcher_determines_at_once_and_runs_here(launcher: list[Any], jobs: int, here: bool, expected: int) -> None:
    name, *n_jobs = launcher
    config = composed(f"hydra/launcher={name}", *(f"hydra.launcher.n_jobs={number}" for number in n_jobs))
    assert (runs_here(config.hydra.launcher), at_once(config.hydra.launcher, jobs)) == (here, expected)


Direction = Enum("Direction", ["minimize", "maximize"])
"""Like the enumeration in the configuration of Optuna's sweeper."""


def test_wrong_direction_rejects_all_but_maximize() -> None:
    for right in ("maximize", Direction.maximize):
        assert wrong_direction(OmegaConf.create({"direction": right})) is None
    assert wrong_direction(composed().hydra.sweeper) is None, "Hydra's own has no such key"
    for wrong, shown in (
        ("minimize", "minimize"),
        (Direction.minimize, "minimize"),
        (["maximize", "minimize"], "['maximize', 'minimize']"),
        ("maximise", "maximise"),
    ):
        error = wrong_direction(OmegaConf.create({"direction": wrong})) or ""
        assert error.startswith(f"hydra.sweeper.direction={shown}: ")
        assert error.endswith("hydra.sweeper.direction=maximize")


def test_mark_done_marks_job_with_finished_run_of_same_stages(tmp_path: Path) -> None:
    config = composed("experiment=llama_baseline", "stages=[evaluate]", f"output_dir={tmp_path}")
    (plan,) = plan_stages(config).values()
    for name, fingerprint in (("of these settings", plan.fingerprint), ("of others", "0123456789ab")):
        run, stage = tmp_path / "runs" / config.name / name, tmp_path / "stages" / "evaluate" / fingerprint
        write_json(run / "stages.json", {"evaluate": {"folder": str(stage), "fingerprint": fingerprint}})
        write_json(run / "summary.json", {})
        write_json(stage / "result.json", {})
    job = Job(number=0, overrides=())
    (marked,) = mark_done([job], [config])
    assert (marked.state, marked.run) == ("done already", str(tmp_path / "runs" / config.name / "of these settings"))
    (plan.folder / "result.json").unlink()
    assert mark_done([job], [config]) == [job]


def test_second_sweep_in_same_folder_is_rejected(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Two sweeps with the same folder, or started at the same instant, would run each other's jobs."""
    config = composed(f"hydra.sweep.dir={tmp_path}")
    with lock(tmp_path / ".lock"), pytest.raises(SystemExit, match="2"):
        SweepWatch().on_multirun_start(config)
    assert re.search(f"{tmp_path}.*hydra.sweep.dir", capsys.readouterr().err)


def job(number: int, *overrides: str, state: State = "done", cause: str | None = None) -> Job:
    return Job(number=number, overrides=overrides, state=state, cause=cause)


def write_finished_job(group: Path, finished: Job, metrics: dict[str, float]) -> Job:
    """Writes the folders of a finished job and returns the job."""
    run = group.parent / "runs" / str(finished.number)
    run.mkdir(parents=True)
    (run / "summary.json").write_text(json.dumps({"seconds": 1.0, "metrics": {"evaluate": metrics}}))
    write_job(group, finished)
    (group / str(finished.number) / "run.json").write_text(json.dumps({"folder": str(run)}))
    return finished


def test_summarise_writes_table_and_plot_and_lists_failures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = tmp_path / "sweep"
    jobs = [
        write_finished_job(sweep, job(n, f"reward.temperature={tau}", "sweep=tau"), {SAMPLED: value})
        for n, (tau, value) in enumerate([(0.2, 0.25), (0.05, 0.5), (0.02, 0.375)])
    ]
    jobs.append(job(3, "reward.temperature=-1", "sweep=tau", state="failed", cause="temperature must be positive"))
    lines = summarise(sweep, jobs)
    rows = list(csv.DictReader((sweep / "summary.csv").open()))
    assert [(row["reward.temperature"], float(row["mean"])) for row in rows] == [
        *(("0.05", 0.5), ("0.02", 0.375), ("0.2", 0.25))
    ]
    assert (sweep / "reward.temperature.png").stat().st_size > 10_000
    assert lines[0] == "4 jobs: 3 done, 1 failed"
    assert lines[-1].startswith("job 3 (reward.temperature=-1) FAILED: temperature must be positive; log ")
    output = capsys.readouterr().out
    assert output.index("0.500") < output.index("0.375") < output.index("0.250")


def test_interrupt_during_summary_exits_with_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def raise_interrupt(*_: Any) -> None:
        raise KeyboardInterrupt

    live = LiveJobs(group=tmp_path, expected=[], console=Console(force_terminal=False))
    live.start()
    monkeypatch.setattr(sweeping, "_watched", [live])
    monkeypatch.setattr(sweeping, "summarise", raise_interrupt)
    with pytest.raises(SystemExit, match="130"):
        sweeping.watch(lambda: None)
    assert "summary" in capsys.readouterr().err
