"""``hints``: suggestions for mistyped names, and commands in the form that works here."""

from __future__ import annotations

import shlex
import sys
from pathlib import Path

import pytest

from experiments.config.hints import command_line, did_you_mean, install_command, python_command

KEYS = ["seed", "reward.weight", "loss.loss.weight", "rollout.group_size", "budget.grpo.steps"]


@pytest.mark.parametrize(("word", "key"), [("steps", "budget.grpo.steps"), ("groupsize", "rollout.group_size")])
def test_did_you_mean_names_nearest_key_by_its_last_part(word: str, key: str) -> None:
    assert did_you_mean(word, KEYS) == f"did you mean {key!r}?"


def test_did_you_mean_lists_keys_with_the_same_last_part() -> None:
    assert did_you_mean("weight", KEYS) == "did you mean 'loss.loss.weight' or 'reward.weight'?"


def test_commands_differ_between_clone_and_installed_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("experiments.config.hints.IN_A_CLONE", True)
    assert command_line("sweep", "EXPERIMENT", "sweep=NAME") == "make sweep name=EXPERIMENT sweep=NAME"
    assert install_command("optuna") == f"{python_command()} -m pip install -c constraints.txt -e '.[optuna]'"
    monkeypatch.setattr("experiments.config.hints.IN_A_CLONE", False)
    assert command_line("sweep", "EXPERIMENT", "sweep=NAME") == "contrastive-reasoning sweep EXPERIMENT sweep=NAME"
    assert install_command("optuna") == f"{python_command()} -m pip install 'contrastive-reasoning[optuna]'"


def test_python_command_is_this_python_relative_to_working_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "of mine/bin/python"))
    assert shlex.split(python_command()) == [str(tmp_path / "of mine/bin/python")]
    monkeypatch.chdir(tmp_path)
    assert shlex.split(python_command()) == ["of mine/bin/python"]
