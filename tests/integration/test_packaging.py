"""The wheel and the source distribution build, contain exactly the needed files, and run outside of a clone."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).resolve().parents[2]
CODE = ("contrastive_reasoning", "lightning_modules", "datamodules", "callbacks", "experiments")
PACKAGES = (*CODE, "conf")
BUILD = "import sys; from setuptools import build_meta; print(build_meta.build_{}(sys.argv[1]))"
DATA = (
    "conf/**/*.yaml",
    "contrastive_reasoning/policies/embedded/*/*",
    "contrastive_reasoning/published/*.json",
    "contrastive_reasoning/published/*.yaml",
    "experiments/analysis/report/templates/*",
    "experiments/config/*.yaml",
    "experiments/new/templates/*",
    "*/py.typed",
)
"""Files that are not code."""

COMMAND = "contrastive-reasoning"
Installed = Callable[..., subprocess.CompletedProcess[str]]


def build(source: Path, kind: str, to: Path) -> Path:
    """Build a ``wheel`` or an ``sdist`` with the build backend of pyproject.toml, in its folder as build tools do."""
    to.mkdir(exist_ok=True)
    command = [sys.executable, "-c", BUILD.format(kind), str(to)]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return to / done.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy with folders beside the packages that must not be included."""
    clone = tmp_path_factory.mktemp("clone")
    leave = shutil.ignore_patterns("__pycache__", "*.egg-info")
    for package in (*PACKAGES, "benchmarks", "tests/unit/losses", "docs/hooks", "integrations"):
        shutil.copytree(ROOT / package, clone / package, ignore=leave)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, clone)
    (clone / "outputs" / "runs").mkdir(parents=True)
    (clone / "outputs" / "runs" / "config.yaml").write_text("seed: 0\n")
    return build(clone, "sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution, as an installer does."""
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (source,) = folder.iterdir()
    return build(source, "wheel", tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """Runs a command in an empty folder with the wheel installed. The dependencies are those of this environment."""
    target, elsewhere = tmp_path_factory.mktemp("target"), tmp_path_factory.mktemp("elsewhere")
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-index", "--no-deps"]
    subprocess.run([*pip, "--no-compile", "--target", str(target), str(wheel)], check=True)

    environment = os.environ | {"PYTHONPATH": str(target), "PATH": f"{target / 'bin'}:{os.environ['PATH']}"}

    def run(*command: str, where: Path = elsewhere) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=120)

    where = run(sys.executable, "-c", "import experiments; print(experiments.__file__)").stdout
    assert Path(where).is_relative_to(target)
    return run


def test_wheel_contains_exactly_code_and_data_of_packages(wheel: Path) -> None:
    code = {str(path.relative_to(ROOT)) for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    data = {str(path.relative_to(ROOT)) for pattern in DATA for path in ROOT.glob(pattern) if path.is_file()}
    assert {path.split("/")[0] for path in data} == {*PACKAGES}
    with ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        metadata = archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))).decode()
    assert held == code | data
    assert {f"{package}/py.typed" for package in CODE} <= held, "type checkers read no other package"
    assert "Requires-Python: >=3.11.5" in metadata
    assert "License-File: LICENSE" in metadata


def test_installed_commands_work_outside_of_a_clone(installed: Installed) -> None:
    listed = installed(COMMAND, "list")
    assert (listed.returncode, listed.stderr) == (0, "")
    assert listed.stdout.startswith("Experiments: contrastive-reasoning exp NAME\n")
    assert "\n  llama_critic " in listed.stdout
    typo = installed(COMMAND, "exp", "llama_critic", "reward.wieght=1")
    assert typo.returncode == 2
    assert typo.stderr.startswith("reward.wieght: no such key; did you mean 'reward.weight' of batches, ")
    wrong = installed(COMMAND, "sample", "model=embedded:llama_countdwn")
    assert wrong.stderr.endswith("did you mean 'embedded:llama_countdown'?\n"), "embedded policies come along"
    # suggested commands must work here: no target of make, and no folder to install from
    if find_spec("optuna") is None:
        extra = installed(COMMAND, "exp", "llama_critic", "hydra/sweeper=optuna")
        assert extra.stderr.startswith("hydra/sweeper=optuna is not installed: ")
        assert extra.stderr.endswith("python -m pip install 'contrastive-reasoning[optuna]'\n")
    compared = installed(COMMAND, "compare", "countdown_credit")
    assert compared.stderr.endswith(": contrastive-reasoning study countdown_credit\n")


@pytest.fixture
def another_project(tmp_path: Path) -> Path:
    """A folder with packages of the same names as ours."""
    for package in PACKAGES:
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise ImportError('this is another project')\n")
    return tmp_path


def test_command_ignores_packages_of_same_name_in_another_project(installed: Installed, another_project: Path) -> None:
    planned = installed(COMMAND, "plan", "grpo_gsm8k", "scale=paper", "gpus=8", where=another_project)
    assert (planned.returncode, planned.stderr) == (0, "")
    assert "GiB" in planned.stdout


@pytest.mark.slow
def test_experiment_with_own_reward_writes_results_to_folder_of_other_project(
    installed: Installed, another_project: Path
) -> None:
    (another_project / "my_rewards.py").write_text(
        "def brevity(problem, completion):\n    return -float(len(completion))\n"
    )
    own = ["reward=function", "reward.function._target_=my_rewards.brevity"]
    done = installed(COMMAND, "exp", "llama_baseline", "debug=fast", *own, where=another_project)
    assert done.returncode == 0, done.stderr
    assert {"mlruns", "outputs"} <= {path.name for path in another_project.iterdir()}
