"""The whole pipeline in small: every stage, reuse, a resumed stage, a sweep, and its runs in MLflow."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from copy import deepcopy
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from mlflow.entities import Run
from mlflow.tracking import MlflowClient
from omegaconf import DictConfig
from transformers import AutoModelForCausalLM

from experiments.config.contradictions import contradiction
from experiments.config.stages import STAGES
from experiments.stages.experiment import run_experiment
from experiments.system.devices import THREADS, cores_each
from tests import config_kit
from tests.integration.test_kills import numbers

SMALL = ["experiment=llama_critic", "debug=fast", "policy.pretrained=null", "policy.corpus.plays=50"]


def composed(output: Path, *overrides: str) -> DictConfig:
    config = deepcopy(config_kit.composed(*SMALL, "logger.mirror=false", f"output_dir={output}", *overrides))
    assert contradiction(config) is None
    return config


def run(output: Path, *overrides: str) -> Path:
    """Run one experiment in this process; its folder."""
    return run_experiment(composed(output, *overrides))


def entries(folder: Path) -> dict[str, dict[str, str]]:
    return json.loads((folder / "stages.json").read_text())


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a finished experiment."""
    return run(tmp_path_factory.mktemp("outputs"))


def test_every_stage_runs_and_writes_its_result(first: Path) -> None:
    stages = entries(first)
    assert [*stages] == [*STAGES]
    for name, entry in stages.items():
        assert not entry["reused"]
        assert json.loads((Path(entry["folder"]) / "result.json").read_text())["stage"] == name
    summary = json.loads((first / "summary.json").read_text())["metrics"]
    assert {"start/verifier/accuracy", "test/verifier/accuracy", "test/verifier/pass_at_8"} <= set(summary["evaluate"])
    assert {"val/oracle/auroc_depth1", "train/critic/loss"} <= set(summary["critic"])
    assert {"train/reward/critic", "val/verifier/accuracy"} <= set(summary["grpo"])


@pytest.mark.parametrize(
    ("stage", "metric"),
    [
        ("warm_start", "val/warm_start/loss"),
        ("critic", "val/oracle/auroc_depth1"),
        ("grpo", "val/verifier/accuracy_sampled"),
    ],
)
def test_curves_begin_before_the_first_update(first: Path, stage: str, metric: str) -> None:
    lines = (Path(entries(first)[stage]["folder"]) / "metrics.jsonl").read_text().splitlines()
    points = [entry for entry in map(json.loads, lines) if entry["name"] == metric]
    assert points[0]["step"] == 0
    assert points[0]["value"] != points[-1]["value"] or stage == "grpo"  # two updates need not change an answer


"""Metrics that need a correct and an incorrect rollout."""


def test_second_run_reuses_every_stage(first: Path) -> None:
    """The sweep below checks which stages a run with other settings reuses."""
    assert all(entry["reused"] for entry in entries(run(first.parents[2])).values())


@pytest.mark.whole
def test_run_without_callbacks_has_same_weights_and_metrics(first: Path, tmp_path: Path) -> None:
    """Without the configuration's callbacks, the weights and all metrics that remain are the same."""
    config = composed(tmp_path / "outputs", "stages=[warm_start,critic,grpo]")
    for stage in config.callbacks:
        config.callbacks[stage] = {}
    unwatched = entries(run_experiment(config))
    assert not list((tmp_path / "outputs").rglob("figures/**/*.png"))
    assert len(unwatched) == 3
    for name, other in unwatched.items():
        entry = entries(first)[name]
        left, there = (numbers(Path(stages["folder"])) for stages in (other, entry))
        assert left
        assert dict(left.items() - there.items()) == {}, name
        for path in Path(entry["folder"]).rglob("*.safetensors"):
            without = Path(other["folder"]) / path.relative_to(entry["folder"])
            assert without.read_bytes() == path.read_bytes(), path


SECRET = "sentinel-0123456789"
SECRETS = dict.fromkeys(
    ("HF_TOKEN", "MLFLOW_TRACKING_PASSWORD", "MLFLOW_TRACKING_TOKEN", "AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY"), SECRET
)


LEAK = """
import os, warnings
from lightning import Callback

class Leak(Callback):
    def __init__(self, **settings):
        pass

    def on_train_start(self, trainer, pl_module):
        print("printed", os.environ["HF_TOKEN"])
        warnings.warn("warned of " + os.environ["HF_TOKEN"])
"""
"""A callback that prints its token, in the process of a job."""


class Sweep(NamedTuple):
    client: MlflowClient
    runs: list[Run]
    """In MLflow: of the sweep, its jobs and their stages."""
    folders: list[Path]
    said: str


@pytest.fixture(scope="module")
def sweep(first: Path, tmp_path_factory: pytest.TempPathFactory) -> Sweep:
    """2 × 1 jobs at once by the command line; both write to a new database. The warm start and the critic come from
    the finished experiment."""
    tracked, own = tmp_path_factory.mktemp("mlruns"), tmp_path_factory.mktemp("own")
    (own / "leaky.py").write_text(LEAK)
    database = f"sqlite:///{tracked / 'mlflow.db'}"
    command = [sys.executable, "-m", "experiments.run", "-m", *SMALL, f"output_dir={first.parents[2]}"]
    swept = ["objective.kl_weight=0.1,0.2", "rollout.group_size=4", "stages=[warm_start,critic,grpo]"]
    swept += ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    environment = {name: value for name, value in os.environ.items() if name not in THREADS}
    environment |= {**SECRETS, "MLFLOW_TRACKING_URI": database}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(own), os.environ.get("PYTHONPATH")]))
    command = [*command, *swept, "logger.patience=60", "callbacks.grpo.completion_projection._target_=leaky.Leak"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    client = MlflowClient(tracking_uri=database)
    runs = client.search_runs([each.experiment_id for each in client.search_experiments()])
    return Sweep(client, runs, [first.parents[2], tracked], done.stdout + done.stderr)


@pytest.mark.whole
def test_parallel_jobs_share_cores_and_reuse_warm_start_and_critic_of_first_experiment(
    first: Path, sweep: Sweep
) -> None:
    jobs = [entries(folder) for folder in first.parent.iterdir() if (folder / "sweep.json").exists()]
    reused = {"warm_start": True, "critic": True, "grpo": False}
    assert [{name: entry["reused"] for name, entry in job.items()} for job in jobs] == [reused] * 2
    configs = [Path(job["grpo"]["folder"]) / "config.yaml" for job in jobs]
    assert {yaml.safe_load(path.read_text())["threads"] for path in configs} == {cores_each(2)}
    one, other = (json.loads(path.read_text()) for path in first.parents[2].glob("sweeps/*/*/job.json"))
    assert max(one["began"], other["began"]) < min(one["ended"], other["ended"]), "two ran at once"


@pytest.mark.whole
def test_sweep_in_mlflow_is_one_parent_with_its_jobs_as_children(sweep: Sweep) -> None:
    assert sorted(run.data.tags["kind"] for run in sweep.runs) == ["experiment"] * 2 + ["stage"] * 6 + ["sweep"]
    assert {run.info.status for run in sweep.runs} == {"FINISHED"}
    (parent,) = (run for run in sweep.runs if run.data.tags["kind"] == "sweep")
    children = [run for run in sweep.runs if run.data.tags.get("mlflow.parentRunId") == parent.info.run_id]
    arms = {(run.data.params["objective.kl_weight"], run.data.params["rollout.group_size"]) for run in children}
    assert arms == {("0.1", "4"), ("0.2", "4")}
    assert all("val/verifier/accuracy" in run.data.metrics for run in children)


@pytest.mark.whole
def test_mlflow_has_all_metadata_and_artifacts_of_a_sweep_run(sweep: Sweep, tmp_path: Path) -> None:
    """Its tags, software, data, system metrics, figures, pages, tables, and its policy."""
    client, runs = sweep.client, sweep.runs
    job = next(run for run in runs if run.data.tags["kind"] == "experiment")
    stages = {run.data.tags["stage"]: run for run in runs if run.data.tags.get("mlflow.parentRunId") == job.info.run_id}
    assert {"method", "objective", "reward", "policy", "seed", "git_sha"} <= set(job.data.tags)
    assert {"config.yaml", "origin.json", "environment.json", "installed.txt"} <= files_of(client, job)
    grpo = stages["grpo"]
    assert "system/cpu_utilization_percentage" in grpo.data.metrics
    assert "credit" in files_of(client, grpo, "pages/train")
    assert "completions.json" in files_of(client, grpo, "tables/train")
    AutoModelForCausalLM.from_pretrained(client.download_artifacts(grpo.info.run_id, "policy", str(tmp_path)))


def files_of(client: MlflowClient, run: Run, folder: str | None = None) -> set[str]:
    """The names in one folder of a run's artifacts."""
    return {Path(file.path).name for file in client.list_artifacts(run.info.run_id, folder)}


@pytest.mark.whole
def test_sweep_writes_no_secret_of_its_environment(sweep: Sweep) -> None:
    """There is none in its folders, in MLflow's database and artifacts, or in its output."""
    files = [path for folder in sweep.folders for path in folder.rglob("*") if path.is_file()]
    assert {"config.yaml", "mirror.json", "mirror.log", "mlflow.db", "multirun.yaml"} <= {path.name for path in files}
    assert holding("llama_critic", files), "what is there is found"
    assert not holding(SECRET, files)
    logs = [path.read_text() for path in files if path.name == "log.txt"]
    assert len(logs) == 2
    assert all("printed ***" in log and "warned of ***" in log for log in logs), "what a part says of it itself"
    assert SECRET not in sweep.said


def holding(text: str, files: list[Path]) -> list[Path]:
    return [path for path in files if text.encode() in path.read_bytes()]


def test_python_without_docstrings_is_refused_in_one_sentence() -> None:
    command = [sys.executable, "-OO", "-m", "experiments.run", *SMALL]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch("PYTHONOPTIMIZE=2 .*transformers.*\n", done.stderr)


@pytest.mark.parametrize("key", ["policy.pretrained", "hydra.sweep.dir"])
def test_secret_in_overrides_is_rejected_before_any_file_is_written(tmp_path: Path, key: str) -> None:
    command = [sys.executable, "-m", "experiments.run", *SMALL, f"output_dir={tmp_path}", f"{key}=${{oc.env:HF_TOKEN}}"]
    done = subprocess.run(command, env=os.environ | SECRETS, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith(f"{key} holds the environment's HF_TOKEN: ")
    assert SECRET not in done.stdout + done.stderr
    assert not list(tmp_path.iterdir())
