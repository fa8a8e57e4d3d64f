"""Mistakes in Hydra's own keys, which Hydra would answer with several lines."""

from __future__ import annotations

from importlib.util import find_spec

import pytest

from experiments.cli.typo import explain
from experiments.schema import register

register()
CLIPO = "experiment=clipo_laptop"
JOBLIB, SUBMITIT = (
    pytest.mark.skipif(not find_spec(f"hydra_plugins.{name}"), reason=f"{name} is not installed")
    for name in ("hydra_joblib_launcher", "hydra_submitit_launcher")
)


@pytest.mark.parametrize(
    ("typed", "sentence"),
    [
        pytest.param(
            "hydra.launcher.n_jobs=2",
            "no such key; hydra/launcher=basic has none, add hydra/launcher=joblib",
            marks=JOBLIB,
        ),
        pytest.param(
            "hydra.launcher.n_jbs=2",
            "no such key; did you mean 'hydra.launcher.n_jobs'? "
            "hydra/launcher=basic has none, add hydra/launcher=joblib",
            marks=JOBLIB,
        ),
        pytest.param(
            "hydra/launcher=joblib hydra.launcher.n_jbs=2",
            "no such key; did you mean 'hydra.launcher.n_jobs'?",
            marks=JOBLIB,
        ),
        pytest.param(
            "hydra/launcher=joblib hydra.launcher.n_jobs=two",
            "Value 'two' of type 'str' could not be converted to Integer",
            marks=JOBLIB,
        ),
        pytest.param(
            "hydra.launcher.timeout_min=3",
            "no such key; hydra/launcher=basic has none, add hydra/launcher=submitit_local or submitit_slurm",
            marks=SUBMITIT,
        ),
        ("hydra.mode=MULTIRN", "Invalid value 'MULTIRN', expected one of [RUN, MULTIRUN]"),
        ("hydra.swep.dir=x", "no such key; did you mean 'hydra.sweep.dir'?"),
        ("hydra.job.env_set.X=1", "to add a key write +hydra.job.env_set.X=1"),
        ("hydra/luncher=basic", "no such key; did you mean 'hydra/launcher'?"),
        ("hydra/job_logging=nonee", "no such job_logging; did you mean 'none'?"),
        ("sweep=tau hydra.job.nme=x", "no such key; did you mean 'hydra.job.name'?"),
    ],
)
def test_a_mistake_gets_its_one_sentence(typed: str, sentence: str) -> None:
    words = typed.split()
    assert explain([CLIPO, *words]) == f"{words[-1]}: {sentence}"


@pytest.mark.parametrize(
    "typed",
    [
        "hydra.sweep.dir=x hydra.mode=RUN",
        "hydra.mode=MULTIRUN hydra.verbose=true seed=0,1",
        "hydra.sweeper.max_batch_size=3",
        "+hydra.job.env_set.X=1",
        pytest.param("hydra/launcher=joblib hydra.launcher.n_jobs=2 seed=0,1", marks=JOBLIB),
        pytest.param("hydra/launcher=submitit_slurm hydra.launcher.partition=gpu", marks=SUBMITIT),
    ],
)
def test_what_hydra_takes_is_not_complained_about(typed: str) -> None:
    assert explain([CLIPO, *typed.split()]) is None
