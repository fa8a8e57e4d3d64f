"""Optional extras: each resolves and works in its own environment."""

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
    """Skip the test if no package index can be reached."""
    tried = pip(sys.executable, "--dry-run", "--no-deps", "--ignore-installed", "hydra-core")
    if tried.returncode != 0:
        pytest.skip(f"no package index can be reached: {tried.stderr.strip().splitlines()[-1]}")


@pytest.fixture(scope="module")
def index() -> None:
    need_index()


@pytest.fixture(scope="module")
def with_extra(index: None, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The interpreter of an environment with the packages of this one and an extra. Each is made once."""

    @cache
    def make(extra: str) -> Path:
        own = tmp_path_factory.mktemp(extra)
        subprocess.run([sys.executable, "-m", "venv", own], check=True)
        python = own / "bin" / "python"
        command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        packages = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
        (packages / "beneath.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        done = pip(python, *EXTRAS[extra])
        assert done.returncode == 0, done.stderr
        return python

    return make


def run_sweep(python: Path, folder: Path, *overrides: str) -> tuple[int, str, list[dict[str, Any]]]:
    """Run a sweep; its exit code, its output, and the jobs by number."""
    command = [str(python), "-m", "experiments.run", "-m", *EVALUATED, f"output_dir={folder}", *overrides]
    variables = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    jobs = [json.loads(path.read_text()) for path in folder.glob("sweeps/*/*/job.json")]
    return done.returncode, done.stdout + done.stderr, sorted(jobs, key=lambda job: job["number"])


def test_optuna_maximises_job_results_and_repeats_draws_with_same_seed(
    with_extra: Callable[[str], Path], tmp_path: Path
) -> None:
    python, folder = with_extra("optuna"), tmp_path / "outputs"
    folder.mkdir()
    code, output, jobs = run_sweep(python, folder, *OPTUNA, DRAWN)
    assert (code, [job["state"] for job in jobs]) == (0, ["done"] * TRIALS), output
    assert len({override for job in jobs for override in job["overrides"] if "temperature" in override}) == TRIALS
    best = next(folder.glob("sweeps/*/optimization_results.yaml")).read_text()
    with next(folder.glob("sweeps/*/summary.csv")).open() as file:
        assert f"best_value: {max(float(row['mean']) for row in csv.DictReader(file))}" in best

    code, output, jobs = run_sweep(python, folder, *OPTUNA, DRAWN)
    assert (code, len(jobs)) == (0, 2 * TRIALS), output
    assert all(jobs[2 * number]["overrides"] == jobs[2 * number + 1]["overrides"] for number in range(TRIALS))
    assert len([*folder.glob("stages/evaluate/*/result.json")]) == TRIALS, "nothing is computed twice"


def test_optuna_with_default_direction_is_rejected(with_extra: Callable[[str], Path], tmp_path: Path) -> None:
    python, folder = with_extra("optuna"), tmp_path / "outputs"
    folder.mkdir()
    code, output, jobs = run_sweep(python, folder, "hydra/sweeper=optuna", DRAWN)
    assert (code, jobs) == (2, [])
    assert output.startswith("hydra.sweeper.direction=minimize: jobs return success, which a sweep must maximize")


def test_failed_optuna_trial_does_not_stop_others(with_extra: Callable[[str], Path], tmp_path: Path) -> None:
    python, folder, empty = with_extra("optuna"), tmp_path / "outputs", tmp_path / "empty"
    folder.mkdir()
    empty.mkdir()
    code, output, jobs = run_sweep(python, folder, *OPTUNA, f"policy.pretrained=choice({empty},{EMBEDDED})")
    assert (code, len(jobs), {job["state"] for job in jobs}) == (1, TRIALS, {"failed", "done"}), output


@pytest.mark.parametrize("packages", [EXTRAS["gpu"], EXTRAS["liger"], ["vllm"]], ids=["gpu", "liger", "vllm"])
def test_gpu_packages_resolve_from_index(index: None, packages: list[str]) -> None:
    """vLLM has its own environment, so our version bounds do not apply. Dependencies are not fetched."""
    tried = pip(sys.executable, "--dry-run", "--no-deps", "--ignore-installed", *packages)
    assert tried.returncode == 0, tried.stderr
