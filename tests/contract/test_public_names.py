"""Public names that users, scripts and notebooks use: commands, experiments, configuration paths, imports, metrics.

``data/public_names.json`` lists the names. A name may be added there; removing one breaks scripts of users.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import defaultdict
from importlib import import_module
from pathlib import Path

import pytest
from omegaconf import OmegaConf

from tests.config_kit import composed
from tests.forking import Forks

ROOT = Path(__file__).resolve().parents[2]
NAMES = json.loads((Path(__file__).parent / "data" / "public_names.json").read_text(encoding="utf-8"))
USAGE_ERROR = 2
SMALL = "debug=fast budget.grpo.max_completion_tokens=48 budget.grpo.problems=8 budget.grpo.group_size=8"
RUNS = {
    "critic_calibrated": f"experiment=llama_critic_calibrated {SMALL} budget.grpo.steps=5 budget.grpo.updates=2",
    "clipo": f"experiment=clipo_laptop {SMALL} budget.grpo.max_completion_tokens=96 budget.grpo.steps=3 "
    "budget.grpo.updates=2 budget.clipo.warmup_steps=1",
    "plan_bonus": f"experiment=grpo_laptop stages=[grpo] reward=plan_bonus {SMALL} "
    "budget.grpo.max_completion_tokens=96 budget.grpo.steps=3",
}


def make(*words: str) -> subprocess.CompletedProcess[str]:
    """Runs ``make --dry-run``, which prints its commands only."""
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("MAKE")
    }  # set by a surrounding make
    command = ["make", "--no-print-directory", "--dry-run", *words]
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("target", NAMES["make"])
def test_make_target_accepts_its_variables(target: str) -> None:
    given = [f"{variable}=value" for variable in NAMES["make"][target]]
    assert make(target, *given).returncode == 0


def test_unknown_make_target_or_variable_runs_nothing() -> None:
    for words in (["expp"], ["exp", "nam=llama_critic"]):
        result = make(*words)
        assert result.returncode == USAGE_ERROR
        assert not result.stdout.strip()


def test_make_list_prints_every_experiment_study_and_sweep() -> None:
    result = subprocess.run(
        ["make", "--silent", "list", f"PYTHON={sys.executable}"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    listed = set(re.findall(r"[\w-]+", result.stdout))
    for kind in ("experiments", "studies", "sweeps"):
        assert not set(NAMES[kind]) - listed


def test_public_paths_exist_in_configuration() -> None:
    config = composed("experiment=clipo_gsm8k")
    places = [path.rpartition(".") for path in NAMES["paths"]]
    missing = [path for path in places if path[2] not in (OmegaConf.select(config, path[0]) if path[0] else config)]
    assert missing == []


@pytest.mark.parametrize("module", NAMES["python"])
def test_public_python_names_can_be_imported(module: str) -> None:
    found = import_module(module)
    assert not [name for name in NAMES["python"][module] if not hasattr(found, name)]


@pytest.mark.whole
@pytest.mark.parametrize("run", RUNS)
def test_run_logs_every_public_metric(run: str, command_line: Forks, tmp_path: Path) -> None:
    given = ["seed=3", *RUNS[run].split(), f"output_dir={tmp_path}", "logger.mirror=false"]
    assert command_line(*given, folder=str(tmp_path)) == 0, command_line.log.read_text()
    logged = defaultdict[str, set[str]](set)
    for file in tmp_path.glob("stages/*/*/metrics.jsonl"):
        for line in file.read_text(encoding="utf-8").splitlines():
            logged[file.parts[-3]].add(json.loads(line)["name"])
    for stage, names in NAMES["metrics"][run].items():
        assert not set(names) - logged[stage]
