"""A study of one's own: in the study/ of a folder of one's own, or a file anywhere, in every command that knows one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.cli.catalogue import main as show
from experiments.compare import main as compare
from experiments.config.folders import VARIABLE, study_names, take_config_dir
from experiments.report import main as report
from experiments.schema import register
from experiments.studies.jobs import check, start_jobs
from experiments.studies.plan import StudyError, find_study, split
from experiments.study import main as run

ROOT = Path(__file__).resolve().parents[4]
CONF = ROOT / "docs" / "examples" / "conf"
NAME = "brevity_cost"
register()


@pytest.fixture(autouse=True)
def without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test remembers is put back."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)


def test_a_folder_of_ones_own_has_studies(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(StudyError, match=f"no study '{NAME}'"):
        find_study(NAME)
    take_config_dir(["--config-dir", str(CONF)])
    assert {NAME, "countdown_credit"} <= set(study_names())
    names, (study,) = split([NAME, "grpo_laptop"])
    assert (names, study.name) == ([NAME, "grpo_laptop"], NAME)
    with pytest.raises(StudyError, match=f"no study 'brevity_cst'; did you mean '{NAME}'"):
        find_study("brevity_cst")
    show()
    assert re.search(rf"^  {NAME} +What a reward for brevity costs", capsys.readouterr().out, re.M)
    assert start_jobs(study) == {}
    check(study)


def test_a_file_anywhere_is_a_study_under_its_own_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text((CONF / "study" / f"{NAME}.yaml").read_text())
    names, (study,) = split([str(file)])
    assert (names, study.name) == (["mine"], "mine")
    assert study.command == f"make study name={file}", "given so that it is found again"


@pytest.mark.parametrize("main", [run, compare, report])
def test_every_command_takes_the_folder(main: object, tracker: object, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that only it has is looked for there: nothing has run, or no such job can."""
    assert callable(main)
    option = "only=none" if main is run else "metric=test/verifier/accuracy"
    assert main([NAME, option, "--config-dir", str(CONF)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(("only=none: no such arm; there are brevity, grpo", f"No run of {NAME} in MLflow at "))
    assert main([NAME, "--config-dir", "/nowhere"]) == 2
    assert capsys.readouterr().err == "--config-dir /nowhere: no such folder\n"
