"""Studies of users: in the folder study/ of a config folder, or in any file, for every command with studies."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.cli.catalogue import main as show
from experiments.compare import main as compare
from experiments.config.folders import VARIABLE, study_names, take_config_dir
from experiments.jobs.study_jobs import check, start_jobs
from experiments.jobs.study_plan import StudyError, find_study, split
from experiments.report import main as report
from experiments.study import main as run

ROOT = Path(__file__).resolve().parents[4]
CONF = ROOT / "docs" / "examples" / "conf"
NAME = "brevity_cost"


@pytest.fixture(autouse=True)
def reset_config_dir(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restores the config folder after each test."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)


def test_config_dir_adds_its_studies(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StudyError, match=f"'{NAME}'"):
        find_study(NAME)
    take_config_dir(["--config-dir", str(CONF)])
    assert {NAME, "countdown_credit"} <= set(study_names())
    names, (study,) = split([NAME, "grpo_laptop"])
    assert (names, study.name) == ([NAME, "grpo_laptop"], NAME)
    with pytest.raises(StudyError, match=f"'brevity_cst'.*'{NAME}'"):
        find_study("brevity_cst")
    show()
    assert re.search(rf"^  {NAME} +What a reward for brevity costs", capsys.readouterr().out, re.M)
    assert start_jobs(study) == {}
    check(study)


def test_study_file_outside_config_is_found_by_path(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text((CONF / "study" / f"{NAME}.yaml").read_text())
    names, (study,) = split([str(file)])
    assert (names, study.name) == (["mine"], "mine")
    assert study.command == f"make study name={file}", "given so that it is found again"


@pytest.mark.parametrize("main", [run, compare, report])
def test_commands_accept_config_dir(main: object, tracker: object, capsys: pytest.CaptureFixture[str]) -> None:
    """Only the folder has this study. The error is that no run exists, or that there is no such arm."""
    assert callable(main)
    option = "only=none" if main is run else "metric=test/verifier/accuracy"
    assert main([NAME, option, "--config-dir", str(CONF)]) == 2
    error = capsys.readouterr().err
    assert re.search(f"^only=none: .*brevity, grpo|^No run of {NAME} in MLflow", error)
    assert main([NAME, "--config-dir", "/nowhere"]) == 2
    assert capsys.readouterr().err.startswith("--config-dir /nowhere: ")
