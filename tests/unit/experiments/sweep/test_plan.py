"""The jobs of a sweep before the first one runs."""

from __future__ import annotations

import os
from enum import Enum
from typing import Any

import pytest
from hydra import compose, initialize_config_module
from omegaconf import OmegaConf

from experiments.jobs.job import Job
from experiments.jobs.progress import label, varying
from experiments.schema import register
from experiments.sweep.plan import at_once, expected_jobs, runs_here, wrong_direction

register()
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
