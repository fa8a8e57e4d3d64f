"""The console command and the Makefile are one: the same commands, the same words, the same processes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from types import ModuleType

import pytest

from experiments import compare
from experiments.commands import COMMANDS
from experiments.plan.options import Options as PlanOptions
from experiments.report import command as report
from experiments.sample.options import SHORT
from experiments.sample.options import Options as SampleOptions
from experiments.study import command as study

ROOT = Path(__file__).resolve().parents[3]
OF_A_CLONE = {"help", "setup", "test", "test-whole", "test-all", "lint", "types", "check", "docs", "clean"}
"""Targets that mean nothing where the package is installed."""
SAID = re.compile(r"^([a-z-]+):.*?## (.*?)(?::  .*)?$", re.M)
PROMPT = 'What\'s 2 * $HOME ("in `words`")? #1'


Made = Callable[..., list[str]]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """What make and its shell start, told by a stand-in for Python: module, then arguments."""
    folder = tmp_path / "venv" / "bin"
    folder.mkdir(parents=True)
    program = folder / "python"
    program.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    program.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name != "MLFLOW_TRACKING_URI"}

    def run(*words: str) -> list[str]:
        places = [f"VENV={folder.parent}", f"PYTHON={folder / 'python'}"]
        command = ["make", "--silent", "-o", f"{folder.parent}/.installed", *places, *words]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        dash, *rest = done.stdout.splitlines()
        assert dash == "-m"
        return rest

    return run


def console(command: str, *typed: str) -> list[str]:
    return [COMMANDS[command].module, *COMMANDS[command].words(typed)]


@pytest.mark.parametrize(
    ("target", "typed"),
    [
        (["exp", "name=qwen_critic", "over=seed=1 objective=gspo"], ["exp", "qwen_critic", "seed=1", "objective=gspo"]),
        (["exp", "name=qwen_critic", "over=seed=1"], ["exp", "name=qwen_critic", "seed=1"]),
        (["exp"], ["exp", "llama_critic"]),
        (
            ["sweep", "name=clipo_laptop", "sweep=tau", "over=seed=0,1"],
            ["sweep", "clipo_laptop", "sweep=tau", "seed=0,1"],
        ),
        (["study", "name=countdown_credit", "over=parallel=1"], ["study", "countdown_credit", "parallel=1"]),
        (["list"], ["list"]),
        (
            ["plan", "name=grpo_gsm8k", "scale=paper", "gpus=8", "over=mfu=0.3"],
            ["plan", "grpo_gsm8k", "scale=paper", "gpus=8", "mfu=0.3"],
        ),
        (["eval"], ["eval"]),
        (["eval", "model=a/b", "suite=track1", "over=seed=1"], ["eval", "seed=1", "model=a/b", "suite=track1"]),
        (["eval", "name=llama_oracle"], ["eval", "llama_oracle"]),
        (["sample"], ["sample"]),
        (
            ["sample", "model=a/b", f"prompt={PROMPT}", "over=n=3"],
            ["sample", "model=a/b", f"prompt={PROMPT}", "n=3"],
        ),
        (["compare", "name=a b", "over=by=seed"], ["compare", "a", "b", "by=seed"]),
        (["report", "name=a b", "over=output=x.html"], ["report", "a", "b", "output=x.html"]),
        (["dashboard"], ["dashboard"]),
        (["dashboard", "over=--port 5001"], ["dashboard", "--port", "5001"]),
        (["dashboard", "name=a b", "over=--port 5001"], ["dashboard", "a", "b", "--port", "5001"]),
        (["sync"], ["sync"]),
        (["sync", "name=llama_critic"], ["sync", "llama_critic"]),
        (["bench", "over=--repeats 3"], ["bench", "--repeats", "3"]),
    ],
    ids=" ".join,
)
def test_a_command_becomes_what_its_target_runs(
    made: Made, target: list[str], typed: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert made(*target) == console(*typed)


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("exp ovr=seed=1", "make exp takes name=… over=…, not ovr=seed=1, so nothing was done; "),
        ("exp name=qwen_critic seed=1", "make exp takes name=… over=…, not seed=1, "),
        ("exp scale=paper", "make exp takes name=… over=…, not scale=paper, "),
        ("lint name=qwen_critic", "make lint takes no variable, not name=qwen_critic, "),
        (
            "exp qwen_critic",
            "there is no target qwen_critic, so nothing was done; a name is said as name=qwen_critic. ",
        ),
        ("exq", "there is no target exq, so nothing was done; "),
    ],
)
def test_a_word_that_a_target_would_not_hear_is_refused(typed: str, said: str) -> None:
    done = subprocess.run(
        ["make", "--dry-run", "--no-print-directory", *typed.split()], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert f"*** {said}" in done.stderr


def test_a_python_that_is_too_old_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    old = tmp_path / "python"
    old.write_text(f'#!/bin/sh\nshift\nexec {sys.executable} -c "import sys; sys.version_info = (3, 10); $1"\n')
    old.chmod(0o755)
    venv = tmp_path / "venv"
    words = ["make", "--silent", "setup", f"PYTHON={old}", f"VENV={venv}"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"Python 3.11 or newer is needed, {old} is ")
    assert not venv.exists()


def test_every_target_of_use_after_an_install_is_a_command_of_the_same_summary() -> None:
    targets = {name: said for name, said in SAID.findall((ROOT / "Makefile").read_text()) if name not in OF_A_CLONE}
    assert {name: command.summary for name, command in COMMANDS.items()} == targets


@pytest.mark.parametrize("module", [study, compare, report])
def test_the_keys_of_programs_with_flags_are_their_flags(
    module: ModuleType, capsys: pytest.CaptureFixture[str]
) -> None:
    (command,) = [one for one in COMMANDS.values() if module.__name__.startswith(one.module)]
    with pytest.raises(SystemExit):
        module.main(["--help"])
    flags = set(re.findall(r"^ +--(\w+)", capsys.readouterr().out, re.M))
    assert set(command.own_keys) == flags


def test_the_keys_of_plan_and_sample_are_their_options() -> None:
    assert set(COMMANDS["plan"].own_keys) == {field.name for field in fields(PlanOptions)}
    assert set(COMMANDS["sample"].own_keys) == {field.name for field in fields(SampleOptions)} | set(SHORT)


def test_usage_names_keys_that_there_are() -> None:
    for name, command in COMMANDS.items():
        named = set(re.findall(r"\[(\w+)=", command.usage)) - {"key", "sweep", "suite", "scale"}
        assert named <= set(command.own_keys), name
