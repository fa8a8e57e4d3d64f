from __future__ import annotations

from importlib.util import find_spec

import pytest

from experiments.cli.typo import explain
from experiments.schema import register

register()
CLIPO = "experiment=clipo_laptop"


@pytest.mark.parametrize(
    ("override", "sentence"),
    [
        ("hydra/sweeper=optuna", "hydra/sweeper=optuna is not installed: pip install -e '.[optuna]'"),
        ("hydra/launcher=ray", "hydra/launcher=ray is not installed: pip install -e '.[ray]'"),
        ("hydra/launcher=jobib", "hydra/launcher=jobib: no such launcher; did you mean 'joblib'?"),
        (
            "reward.temperature=interval(0.01,0.2)",
            "reward.temperature=interval(0.01,0.2): a sweep without steps needs hydra/sweeper=optuna",
        ),
    ],
)
def test_what_is_not_installed_is_answered_with_what_installs_it(override: str, sentence: str) -> None:
    if any(extra in sentence and find_spec(extra) for extra in ("optuna", "ray")):
        pytest.skip("it is installed here")
    assert explain([CLIPO, override]) == sentence


@pytest.mark.parametrize("launcher", ["basic", "joblib", "submitit_slurm"])
def test_a_launcher_that_there_is_is_taken(launcher: str) -> None:
    assert explain([CLIPO, f"hydra/launcher={launcher}", "seed=0,1"]) is None
