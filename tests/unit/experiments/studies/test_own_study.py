"""A study of one's own: in the study/ of a folder of one's own, or a file anywhere, in every command that knows one."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from experiments.cli.catalogue import main as show
from experiments.compare import main as compare
from experiments.config import folders
from experiments.config.folders import VARIABLE, take_config_dir
from experiments.report import main as report
from experiments.schema import register
from experiments.studies.jobs import check_comparable, check_jobs, jobs_of, start_jobs
from experiments.studies.plan import StudyError, find_study, split, study_names
from experiments.study import main as run

ROOT = Path(__file__).resolve().parents[4]
CONF = ROOT / "docs" / "examples" / "conf"
NAME = "brevity_cost"
MAINS = (run, compare, report)
register()


@pytest.fixture(autouse=True)
def without_a_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever a test remembers is put back."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)


def test_a_folder_of_ones_own_has_studies() -> None:
    assert NAME not in study_names()
    with pytest.raises(StudyError, match=f"no study '{NAME}'"):
        find_study(NAME)
    take_config_dir(["--config-dir", str(CONF)])
    assert {NAME, "countdown_credit"} <= set(folders.study_names())
    assert {NAME, "countdown_credit"} <= set(study_names())
    assert find_study(NAME).question == "Does a reward for brevity cost success on arithmetic stories?"
    names, found = split([NAME, "grpo_laptop"])
    assert (names, [study.name for study in found]) == ([NAME, "grpo_laptop"], [NAME])
    with pytest.raises(StudyError, match=f"no study 'brevity_cst'; did you mean '{NAME}'"):
        find_study("brevity_cst")


def test_it_is_listed_with_its_first_line(capsys: pytest.CaptureFixture[str]) -> None:
    take_config_dir([f"--config-dir={CONF}"])
    show()
    assert re.search(rf"^  {NAME} +What a reward for brevity costs", capsys.readouterr().out, re.M)


def test_the_example_can_be_run() -> None:
    take_config_dir(["--config-dir", str(CONF)])
    study = find_study(NAME)
    jobs = jobs_of(study, {})
    assert start_jobs(study) == {}
    check_jobs(jobs)
    check_comparable(study, jobs)


def test_a_file_anywhere_is_a_study_under_its_own_name(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text((CONF / "study" / f"{NAME}.yaml").read_text())
    names, (study,) = split([str(file)])
    assert (names, study.name) == (["mine"], "mine")
    assert study.command == f"make study name={file}", "typed so that it is found again"


@pytest.mark.parametrize("main", MAINS)
def test_every_command_takes_the_folder(main: object, tracker: object, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that only it has is looked for there: nothing has run, or no such job can."""
    assert callable(main)
    wish = "only=none" if main is run else "metric=test/verifier/accuracy"
    assert main([NAME, wish, "--config-dir", str(CONF)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(("only=none: no such arm; there are brevity, grpo", f"No run of {NAME} in MLflow at "))


@pytest.mark.parametrize("main", MAINS)
def test_a_folder_that_there_is_not_is_answered_in_a_sentence(main: object, capsys: pytest.CaptureFixture[str]) -> None:
    assert callable(main)
    assert main([NAME, "--config-dir", "/nowhere"]) == 2
    assert capsys.readouterr().err == "--config-dir /nowhere: no such folder\n"
