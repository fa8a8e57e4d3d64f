"""``--config-dir``, a user's configuration folder: every composition reads it, and typos get suggestions from it."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from hydra import compose

from experiments.analysis.report.gather import command
from experiments.config.folders import (
    VARIABLE,
    ConfigDirError,
    config_dir_option,
    own_folder,
    summaries,
    take_config_dir,
)
from experiments.config.override_checks import override_error
from experiments.plan.__main__ import main as plan
from experiments.run import main as run
from experiments.schema import composing

EXPERIMENT = """
# @package _global_
# My experiment.
defaults:
  - override /task: arithmetic
  - override /reward: my_reward
name: mine
stages: [warm_start, grpo]
""".lstrip()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Returns a folder with an experiment, a reward, and a group that conf/ lacks; resets the variable afterwards."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    texts = {
        "experiment/mine": EXPERIMENT,
        "reward/my_reward": "# Mine.\ndefaults:\n  - function\n  - _self_\n",
        "flavour/sweet": "# Of a group of my own.\nsugar: 1\n",
    }
    for name, text in texts.items():
        path = tmp_path / "my_conf" / f"{name}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(text)
    return tmp_path / "my_conf"


def test_config_dir_may_begin_with_the_home_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(folder.parent))
    assert take_config_dir([f"--config-dir=~/{folder.name}"]) == []
    assert own_folder() == folder


@pytest.mark.parametrize("form", ["{option} {folder}", "{option}={folder}"])
@pytest.mark.parametrize("option", ["--config-dir", "-cd"])
def test_take_config_dir_removes_option_in_every_form(folder: Path, form: str, option: str) -> None:
    arguments = form.format(option=option, folder=folder).split(" ")
    assert take_config_dir(["experiment=mine", *arguments, "seed=1"]) == ["experiment=mine", "seed=1"]
    assert own_folder() == folder


def test_relative_config_dir_survives_change_of_directory(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder.parent)
    take_config_dir(["--config-dir", "my_conf"])
    monkeypatch.chdir(folder)
    assert override_error(["experiment=mine"]) is None


def test_take_config_dir_without_option_changes_nothing(folder: Path) -> None:
    assert take_config_dir(["experiment=llama_critic", "-m", "--help"]) == ["experiment=llama_critic", "-m", "--help"]
    assert own_folder() is None
    assert (override_error(["experiment=mine"]) or "").startswith("experiment=mine: no such experiment")


def test_composition_summaries_plan_and_command_use_config_dir(folder: Path) -> None:
    take_config_dir(["--config-dir", str(folder)])
    with composing():
        config = compose("config", ["experiment=mine"])
    assert (config.name, config.reward._target_) == ("mine", "contrastive_reasoning.rewards.FunctionReward")
    assert summaries("experiment")["mine"] == "My experiment."
    assert plan(["experiment=mine"]) == 0
    line = command(["experiment=mine", *config_dir_option()])
    assert line == f"python -m experiments.run experiment=mine --config-dir={folder}"
    assert take_config_dir(line.split()[3:]) == ["experiment=mine"]


@pytest.mark.parametrize(
    ("overrides", "named"),
    [
        (["experiment=mien"], "experiment=mien: .*'mine'"),
        (["experiment=mine", "reward=my_rewrd"], "reward=my_rewrd: .*'my_reward'"),
        (["experiment=mine", "flavor=sweet"], "flavor: .*'flavour'"),
    ],
)
def test_typo_gets_suggestion_from_config_dir(folder: Path, overrides: list[str], named: str) -> None:
    take_config_dir(["--config-dir", str(folder)])
    assert override_error(["experiment=mine", "reward=my_reward", "reward.limit_s=5.0"]) is None
    assert re.match(named, override_error(overrides) or "")


def test_take_config_dir_rejects_unusable_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for named in ("no/where", ""):
        with pytest.raises(ConfigDirError, match=f"^--config-dir {named}: no such folder$"):
            take_config_dir(["--config-dir", named])
    assert own_folder() is None
    for name in ("reward/verifier", "reward/clipo_l2", "experiment/llama_critic"):  # a file and two rows of tables
        (folder / f"{name}.yaml").write_text("# Mine.\n")
        with pytest.raises(ConfigDirError, match=rf"{name}\.yaml is an option of conf/ too"):
            take_config_dir(["--config-dir", str(folder)])
        (folder / f"{name}.yaml").unlink()
    monkeypatch.setenv(VARIABLE, "no/where")
    with pytest.raises(ConfigDirError, match=f"^{VARIABLE}=no/where: no such folder$"):
        take_config_dir(["experiment=mine"])


def test_run_prints_one_sentence_for_missing_config_dir(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "TOKENIZERS_PARALLELISM"):  # run() sets them for its own process
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr(sys, "argv", ["run", "experiment=mine", "--config-dir", "my_cnf"])
    with pytest.raises(SystemExit, match="2"):
        run()
    assert capsys.readouterr().err == "--config-dir my_cnf: no such folder\n"
