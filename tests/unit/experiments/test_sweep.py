"""What a sweep's process does around its jobs: which there will be, one sweep in a folder, and what came of it."""

from __future__ import annotations

import csv
import json
import os
from enum import Enum
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from experiments import sweep
from experiments.jobs.job import Job, State, write_job
from experiments.jobs.progress import label, varying
from experiments.schema import register
from experiments.stages.plan import plan_stages
from experiments.sweep import at_once, expected_jobs, mark_done, runs_here, summarise, wrong_direction
from experiments.system.files import write_json

register()
SAMPLED = "test/verifier/accuracy_sampled"
JOBLIB = "hydra_plugins.hydra_joblib_launcher.joblib_launcher.JoblibLauncher"


def jobs_of(*overrides: str, typed: tuple[str, ...] = ()) -> list[Job]:
    """The jobs of a preset, and of what is typed beside it."""
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", ["experiment=clipo_laptop", *overrides], return_hydra_config=True)
        config.hydra.overrides.task = list(typed)
        return expected_jobs(config)


def test_a_preset_and_what_is_typed_make_the_jobs_that_hydra_will_launch() -> None:
    jobs = jobs_of("sweep=fixed_head", typed=("seed=0,1", "stages=[warm_start,grpo]"))
    assert [job.number for job in jobs] == [0, 1, 2, 3]
    keys = varying(jobs)
    assert keys == ["reward", "seed"], "what all jobs share is no part of their name"
    assert [label(job, keys) for job in jobs] == [
        *("reward=clipo seed=0", "reward=clipo seed=1"),
        *("reward=clipo_fixed_head seed=0", "reward=clipo_fixed_head seed=1"),
    ]


def test_a_sweeper_that_looks_for_values_has_no_jobs_beforehand() -> None:
    config = OmegaConf.create({"hydra": {"sweeper": {"_target_": "elsewhere.OptunaSweeper"}}})
    assert expected_jobs(config) == []


@pytest.mark.parametrize(
    ("asked", "jobs", "expected"),
    [(2, 8, 2), (4, 3, 3), (-1, 1000, os.cpu_count()), (3, 0, 3), (-1, 1, 1)],
)
def test_joblib_runs_as_many_at_once_as_it_was_asked_for_and_there_are(asked: int, jobs: int, expected: int) -> None:
    assert at_once(OmegaConf.create({"_target_": JOBLIB, "n_jobs": asked}), jobs) == expected


def test_other_launchers_have_the_machine_for_one_job() -> None:
    assert at_once(OmegaConf.create({"_target_": "hydra._internal.core_plugins.basic_launcher.BasicLauncher"}), 8) == 1


@pytest.mark.parametrize(
    ("launcher", "here"), [("basic", True), ("joblib", True), ("submitit_slurm", False), ("submitit_local", False)]
)
def test_a_cluster_is_not_this_machine(launcher: str, here: bool) -> None:
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", [f"hydra/launcher={launcher}"], return_hydra_config=True)
    assert runs_here(config.hydra.launcher) is here


Direction = Enum("Direction", ["minimize", "maximize"])
"""As the configuration of Optuna's sweeper has it."""


@pytest.mark.parametrize("right", ["maximize", Direction.maximize, ["maximize"], [Direction.maximize]])
def test_more_success_is_looked_for(right: Any) -> None:
    assert wrong_direction(OmegaConf.create({"direction": right})) is None
    assert wrong_direction(OmegaConf.create({"max_batch_size": None})) is None


@pytest.mark.parametrize(
    ("wrong", "shown"),
    [
        ("minimize", "minimize"),
        (Direction.minimize, "minimize"),
        (["maximize", "minimize"], "[maximize,minimize]"),
        ("maximise", "maximise"),
    ],
)
def test_any_other_direction_is_refused_with_the_right_one(wrong: Any, shown: str) -> None:
    assert wrong_direction(OmegaConf.create({"direction": wrong})) == (
        f"hydra.sweeper.direction={shown}: jobs return one number, of which more is better (success): "
        "say hydra.sweeper.direction=maximize"
    )


def test_a_finished_run_of_the_same_stages_is_done_already(tmp_path: Path) -> None:
    with initialize_config_module("conf", version_base="1.3"):
        config = compose("config", ["experiment=llama_baseline", "stages=[evaluate]", f"output_dir={tmp_path}"])
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


def test_a_folder_is_one_sweeps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    """Two that are told the same folder, or begin at the same instant, would run each other's jobs."""
    monkeypatch.setattr(sweep, "_held", [])
    sweep._hold(tmp_path)
    with pytest.raises(SystemExit, match="2"):
        sweep._hold(tmp_path)
    assert f"another sweep runs in {tmp_path}: give this one a hydra.sweep.dir of its own" in capsys.readouterr().err


def job(number: int, *overrides: str, state: State = "done", cause: str | None = None) -> Job:
    return Job(number=number, overrides=overrides, state=state, cause=cause)


def left(group: Path, made: Job, metrics: dict[str, float]) -> Job:
    """The job, and the folders that it would have left."""
    run = group.parent / "runs" / str(made.number)
    run.mkdir(parents=True)
    (run / "summary.json").write_text(json.dumps({"seconds": 1.0, "metrics": {"evaluate": metrics}}))
    write_job(group, made)
    (group / str(made.number) / "run.json").write_text(json.dumps({"folder": str(run)}))
    return made


def test_a_sweep_leaves_a_table_a_picture_and_the_causes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sweep = tmp_path / "sweep"
    jobs = [
        left(sweep, job(n, f"reward.temperature={tau}", "sweep=tau"), {SAMPLED: value})
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
    said = capsys.readouterr().out
    assert said.index("0.500") < said.index("0.375") < said.index("0.250")
