"""Optional extras: each resolves and works in its own environment."""

from __future__ import annotations

import csv
import json
import os
import re
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.evaluation.lm_eval import NEEDED

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
    """The interpreter of an environment with the packages of this one and an extra, or a package. Each is made once."""

    @cache
    def make(extra: str) -> Path:
        own = tmp_path_factory.mktemp(re.sub(r"\W", "", extra))
        subprocess.run([sys.executable, "-m", "venv", own], check=True)
        python = own / "bin" / "python"
        command = [str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
        packages = Path(subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip())
        (packages / "beneath.pth").write_text(f"{ROOT}\n{sysconfig.get_path('purelib')}\n")
        done = pip(python, *EXTRAS.get(extra, [extra]))
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


SUMS = """task: sums
dataset_path: json
dataset_kwargs: {data_files: {test: sums.jsonl}}
output_type: generate_until
test_split: test
doc_to_text: "{{question}}"
doc_to_target: "{{answer}}"
generation_kwargs: {until: ["\\n"], do_sample: false, max_gen_toks: 8}
metric_list: [{metric: exact_match, aggregation: mean, higher_is_better: true}]
"""


def test_lm_eval_evaluates_the_policy_beside_the_suite(with_extra: Callable[[str], Path], tmp_path: Path) -> None:
    package = f"lm_eval[hf]=={NEEDED}"
    assert f"lm_eval[hf,math]=={NEEDED}" in (ROOT / "Makefile").read_text()
    tasks = tmp_path / "tasks"
    tasks.mkdir()
    (tasks / "sums.yaml").write_text(SUMS.replace("sums.jsonl", str(tmp_path / "sums.jsonl")))
    rows = [{"question": f"{i} + {i} =", "answer": str(2 * i)} for i in range(4)]
    (tmp_path / "sums.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    chosen = ["harness=lm_eval", f"harness.python={with_extra(package)}", "harness.tasks=[sums]"]
    chosen += [f"harness.include_path={tasks}", "harness.limit=3", "output_dir=outputs"]
    done = subprocess.run(
        [sys.executable, "-m", "experiments.run", *EVALUATED, *chosen],
        cwd=tmp_path,
        env={**os.environ, "HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (stage,) = tmp_path.glob("outputs/stages/evaluate/*")
    rows = json.loads((stage / "tables" / "test" / "harness" / "0.json").read_text())
    assert [row["answer"] for row in rows] == ["0", "2", "4"]
    metrics = json.loads((stage / "result.json").read_text())["metrics"]
    assert metrics["test/lm_eval/sums/exact_match"] == pytest.approx(sum(row["exact_match"] for row in rows) / 3)
    assert {"test/verifier/accuracy", "test/lm_eval/sums/exact_match_low"} <= metrics.keys()
    assert "lm_eval/sums/exact_match" in (stage / "summary.md").read_text()


def test_task_and_environment_of_verifiers_pass_their_tests(with_extra: Callable[[str], Path]) -> None:
    """They are skipped where the extra is missing, as in the development environment."""
    files = ["tests/unit/tasks/test_verifiers.py", "tests/integration/test_verifiers_countdown.py"]
    command = [str(with_extra("verifiers")), "-m", "pytest", "-q", "-n0", "-p", "no:cacheprovider", *files]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "skipped" not in done.stdout
