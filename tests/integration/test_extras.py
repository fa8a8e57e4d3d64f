"""What is not installed for everybody: each extra resolves and does its part, in an environment of its own."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
EMBEDDED = "embedded:llama_countdown"
EVALUATED = ["experiment=llama_baseline", "debug=fast", "stages=[evaluate]", "logger.mirror=false"]
EXTRAS: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
TRIALS = 3
DRAWN = "rollout.sampling.temperature=interval(0.5,1.5)"
OPTUNA = ["hydra/sweeper=optuna", "hydra.sweeper.direction=maximize", f"hydra.sweeper.n_trials={TRIALS}"]
OPTUNA += ["hydra.sweeper.n_jobs=1", "hydra.sweeper.sampler.seed=0"]
pytestmark = pytest.mark.slow


def pip(python: Path | str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def need_index() -> None:
    """Packages can be had from somewhere, or the test is left out."""
    tried = pip(sys.executable, "--dry-run", "--no-deps", "--ignore-installed", "hydra-core")
    if tried.returncode != 0:
        pytest.skip(f"no package index can be reached: {tried.stderr.strip().splitlines()[-1]}")


@pytest.fixture(scope="module")
def index() -> None:
    need_index()


@pytest.fixture(scope="module")
def with_extra(index: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The interpreter of an environment that has this one beneath it, and an extra on top; each is made once."""

    @cache
    def made(extra: str) -> Path:
        own = tmp_path_factory.mktemp(extra)
        subprocess.run([sys.executable, "-m", "venv", own], check=True)
        python = own / "bin" / "python"
        asked = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        packages = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
        (packages / "beneath.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        done = pip(python, *EXTRAS[extra])
        assert done.returncode == 0, done.stderr
        return python

    return made


def swept(python: Path, folder: Path, *overrides: str) -> tuple[int, str, list[dict[str, Any]]]:
    """Exit code, what was said, and the jobs by number."""
    command = [str(python), "-m", "experiments.run", "-m", *EVALUATED, f"output_dir={folder}", *overrides]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    jobs = [json.loads(path.read_text()) for path in folder.glob("sweeps/*/*/job.json")]
    return done.returncode, done.stdout + done.stderr, sorted(jobs, key=lambda job: job["number"])


def test_ray_runs_the_jobs_of_a_sweep(with_extra: Callable[[str], Path], tmp_path: Path) -> None:
    python, folder, empty = with_extra("ray"), tmp_path / "outputs", tmp_path / "empty"
    folder.mkdir()
    empty.mkdir()
    code, said, jobs = swept(python, folder, "hydra/launcher=ray", f"policy.pretrained={empty},{EMBEDDED}")
    assert [job["state"] for job in jobs] == ["failed", "done"], said
    assert code == 1
    assert jobs[0]["cause"] == f"policy.pretrained={empty}: no model there (config.json is missing)"
    again, said, jobs = swept(python, folder, "hydra/launcher=ray", f"policy.pretrained={EMBEDDED}")
    assert (again, [job["state"] for job in jobs].count("done already")) == (0, 1), said


def test_optuna_learns_from_what_jobs_return_and_with_a_seed_draws_the_same_again(
    with_extra: Callable[[str], Path], tmp_path: Path
) -> None:
    python, folder = with_extra("optuna"), tmp_path / "outputs"
    folder.mkdir()
    code, said, jobs = swept(python, folder, *OPTUNA, DRAWN)
    assert (code, [job["state"] for job in jobs]) == (0, ["done"] * TRIALS), said
    assert len({override for job in jobs for override in job["overrides"] if "temperature" in override}) == TRIALS
    best = next(folder.glob("sweeps/*/optimization_results.yaml")).read_text()
    with next(folder.glob("sweeps/*/summary.csv")).open() as file:
        assert f"best_value: {max(float(row['mean']) for row in csv.DictReader(file))}" in best

    code, said, jobs = swept(python, folder, *OPTUNA, DRAWN)
    assert (code, len(jobs)) == (0, 2 * TRIALS), said
    assert all(jobs[2 * number]["overrides"] == jobs[2 * number + 1]["overrides"] for number in range(TRIALS))
    assert len([*folder.glob("stages/evaluate/*/result.json")]) == TRIALS, "nothing is computed twice"


def test_optuna_is_told_to_look_for_more(with_extra: Callable[[str], Path], tmp_path: Path) -> None:
    python, folder = with_extra("optuna"), tmp_path / "outputs"
    folder.mkdir()
    code, said, jobs = swept(python, folder, "hydra/sweeper=optuna", DRAWN)
    assert (code, jobs) == (2, [])
    assert said.startswith("hydra.sweeper.direction=minimize: jobs return one number, of which more is better")


def test_a_trial_that_fails_takes_no_other_along(with_extra: Callable[[str], Path], tmp_path: Path) -> None:
    python, folder, empty = with_extra("optuna"), tmp_path / "outputs", tmp_path / "empty"
    folder.mkdir()
    empty.mkdir()
    code, said, jobs = swept(python, folder, *OPTUNA, f"policy.pretrained=choice({empty},{EMBEDDED})")
    assert (code, len(jobs), {job["state"] for job in jobs}) == (1, TRIALS, {"failed", "done"}), said


@pytest.mark.parametrize("packages", [EXTRAS["gpu"], EXTRAS["liger"], ["vllm"]], ids=["gpu", "liger", "vllm"])
def test_what_takes_a_gpu_can_be_had(index: None, packages: list[str]) -> None:
    """vLLM has an environment of its own, so no version of ours binds it; what these need is not fetched."""
    tried = pip(sys.executable, "--dry-run", "--no-deps", "--ignore-installed", *packages)
    assert tried.returncode == 0, tried.stderr
