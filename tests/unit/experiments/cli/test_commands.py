"""The console command and the Makefile have the same commands and summaries, and start the same processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from experiments.cli.commands import COMMANDS
from tests.config_kit import composed

ROOT = Path(__file__).resolve().parents[4]
CLONE_TARGETS = {
    *("help", "setup", "test", "test-whole", "test-all", "test-real"),
    *("lint", "types", "check", "bench", "gpu-check", "docs", "clean"),
}
"""Targets without a meaning for an installed package."""
SUMMARY = re.compile(r"^([a-z-]+):.*?## (.*?)(?::  .*)?$", re.M)
PROMPT = 'What\'s 2 * $HOME ("in `words`")? #1'


RunMake = Callable[..., list[str]]


def fake_python(path: Path, body: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def run_make(tmp_path: Path) -> RunMake:
    """Returns a function that runs make with a stand-in for Python and returns the started module and arguments."""
    folder = fake_python(tmp_path / "venv" / "bin" / "python", 'printf "%s\\n" "$@"').parent
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}

    def run(*arguments: str) -> list[str]:
        places = [f"VENV={folder.parent}", f"PYTHON={folder / 'python'}"]
        command = ["make", "--silent", "-o", f"{folder.parent}/.installed", *places, *arguments]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        dash, *rest = done.stdout.splitlines()
        assert dash == "-m"
        return rest

    return run


def console(command: str, *arguments: str) -> list[str]:
    return [COMMANDS[command].module, *COMMANDS[command].convert(arguments)]


@pytest.mark.parametrize(
    ("target", "command"),
    [
        (["exp", "name=qwen_critic", "over=seed=1 objective=gspo"], ["exp", "qwen_critic", "seed=1", "objective=gspo"]),
        (["exp"], ["exp", "llama_critic"]),
        (
            ["sweep", "name=clipo_laptop", "sweep=tau", "over=seed=0,1"],
            ["sweep", "clipo_laptop", "sweep=tau", "seed=0,1"],
        ),
        (["study", "name=countdown_credit", "over=parallel=1"], ["study", "countdown_credit", "parallel=1"]),
        (["list"], ["list"]),
        (["model"], ["model"]),
        (["model", "name=a/b", "over=revision=v1"], ["model", "a/b", "revision=v1"]),
        (["new", "kind=reward", "name=brief", "over=folder=own"], ["new", "reward", "brief", "folder=own"]),
        (["new", "kind=reward", "name=brief"], ["new", "name=brief", "kind=reward"]),
        (["new", "kind=reward", "name=brief"], ["new", "reward", "name=brief"]),
        (
            ["plan", "name=grpo_gsm8k", "scale=paper", "gpus=8", "over=mfu=0.3"],
            ["plan", "grpo_gsm8k", "scale=paper", "gpus=8", "mfu=0.3"],
        ),
        (["eval"], ["eval"]),
        (["eval", "model=a/b", "suite=track1", "over=seed=1"], ["eval", "seed=1", "model=a/b", "suite=track1"]),
        (["eval", "name=llama_oracle"], ["eval", "llama_oracle"]),
        (["eval", "harness=mine", "tasks=a,b", "over=seed=1"], ["eval", "tasks=a,b", "seed=1", "harness=mine"]),
        (["publish", "model=a", "repo=b/c"], ["publish", "model=a", "repo=b/c"]),
        (["publish", "model=a", "over=part=critic"], ["publish", "model=a", "part=critic"]),
        (
            ["sample", "model=a/b", f"prompt={PROMPT}", "over=n=3"],
            ["sample", "model=a/b", f"prompt={PROMPT}", "n=3"],
        ),
        (["compare", "name=a b", "over=by=seed"], ["compare", "a", "b", "by=seed"]),
        (["report", "name=a b", "over=output=x.html"], ["report", "a", "b", "output=x.html"]),
        (["dashboard", "name=a b", "over=--port 5001"], ["dashboard", "a", "b", "--port", "5001"]),
        (["sync", "name=llama_critic llama_baseline"], ["sync", "llama_critic", "llama_baseline"]),
        (["sync", "over=--follow"], ["sync", "--follow"]),
    ],
    ids=" ".join,
)
def test_command_starts_same_process_as_make_target(
    run_make: RunMake, target: list[str], command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert run_make(*target) == console(*command)


def test_make_targets_of_a_clone_run_benchmarks(run_make: RunMake) -> None:
    assert run_make("bench", "over=--repeats 3") == ["benchmarks", "--repeats", "3"]
    assert run_make("gpu-check", "name=a", "over=minutes=9") == ["benchmarks.gpu_check", "a", "minutes=9"]


def test_sync_command_sends_all_or_named_experiments() -> None:
    assert console("sync") == ["experiments.track", "outputs"]
    assert console("sync", "grpo_laptop", "b") == ["experiments.track", "outputs/runs/grpo_laptop", "outputs/runs/b"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        ([], "eval"),
        (["llama_oracle"], "llama_oracle"),
        (["llama_oracle", "name=mine"], "mine"),
    ],
)
def test_eval_command_uses_name_of_experiment_only_if_given(arguments: list[str], name: str) -> None:
    config = composed(*COMMANDS["eval"].convert(arguments))
    assert (config.name, list(config.stages)) == (name, ["evaluate"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("exp ovr=seed=1", "make exp takes name=… over=…, not ovr=seed=1, so nothing was done; "),
        ("exp scale=paper", "make exp takes name=… over=…, not scale=paper, "),
        ("lint name=qwen_critic", "make lint takes no variable, not name=qwen_critic, "),
        ("exp qwen_critic", "there is no target qwen_critic, so nothing was done; a name is given as name=qwen_critic"),
        ("exp NAME=qwen_critic", "make exp takes name=… over=…, not NAME=qwen_critic, "),
    ],
)
def test_make_rejects_variable_that_target_does_not_take(arguments: str, message: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *arguments.split()], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"*** {message}" in done.stderr


@pytest.mark.parametrize(
    "arguments", ["exp name=qwen_critic CUDA_VISIBLE_DEVICES=1", "setup https_proxy=http://p", "lint CC=gcc-13"]
)
def test_make_accepts_environment_variables(arguments: str) -> None:
    command = ["make", "--dry-run", "--no-print-directory", *arguments.split()]
    assert subprocess.run(command, cwd=ROOT, capture_output=True).returncode == 0


OLD = f'exec {sys.executable} -c "import sys; sys.version_info = (3, 10); $2" "$3"'


def set_up(python: Path, venv: Path) -> subprocess.CompletedProcess[str]:
    command = ["make", "--silent", "setup", f"PYTHON={python}", f"VENV={venv}"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_setup_rejects_old_python_of_existing_or_new_environment(tmp_path: Path) -> None:
    """The Python of the environment ``good`` is new enough and installs nothing; other Pythons do not matter."""
    old, poor = (fake_python(tmp_path / folder / "bin" / "python", OLD) for folder in ("old", "poor"))
    for refused, python, venv in ((old, old, "new"), (poor, Path(sys.executable), "poor")):
        done = set_up(python, tmp_path / venv)
        assert done.returncode == 2
        assert done.stderr.startswith(f"Python 3.11.5 or newer is needed, {refused} is ")
    assert not (tmp_path / "new").exists()
    fake_python(tmp_path / "good" / "bin" / "python", "exit 0")
    assert set_up(old, tmp_path / "good").returncode == 0


def test_commands_equal_make_targets_and_their_summaries() -> None:
    targets = {
        name: summary for name, summary in SUMMARY.findall((ROOT / "Makefile").read_text()) if name not in CLONE_TARGETS
    }
    assert {name: command.summary for name, command in COMMANDS.items()} == targets
