"""An arm that would leave nothing to compare is refused before it runs; failed jobs are named whatever else fails."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from experiments.schema import register
from experiments.studies.jobs import check_comparable, composed, jobs_of, lacking
from experiments.studies.plan import Start, Study, StudyError, read_study
from experiments.study import close

register()
SAMPLED = "accuracy_sampled"


def study(*overrides: str, metric: str = "accuracy", curve: str = SAMPLED) -> Study:
    """Of two arms, the second with ``overrides``."""
    arm: dict[str, Any] = {"about": "", "overrides": ["experiment=llama_baseline"], "seeds": 1}
    content = {
        "question": "Is it better?",
        "primary": {"metric": f"test/verifier/{metric}", "arm": "better", "baseline": "plain"},
        "curve": f"val/verifier/{curve}",
        "common": [],
        "start": None,
        "arms": {"plain": arm, "better": {**arm, "overrides": [*arm["overrides"], *overrides]}},
        "order": [["plain", "better"]],
        "parallel": 1,
    }
    return read_study("s", content)


@pytest.mark.parametrize(
    ("asked", "sentence"),
    [
        (
            study("suite=countdown"),
            "suite.settings must hold 'main', on which a study compares; there are longproc_500",
        ),
        (study("suite=track1"), "suite.settings must hold 'main', on which a study compares; there are none"),
        (study("stages=[grpo]"), r"compares the stages grpo and evaluate, stages=\['grpo'\] lacks evaluate"),
        (
            study("budget.evaluate.samples=0", metric=SAMPLED),
            r"suite.settings.main.samples is 0, but the primary metric",
        ),
        (study("rollout.validation_samples=0"), "validation_samples=0 the curve may be val/verifier/accuracy, got"),
        (study("rollout.validation_samples=8", curve="pass_at_4"), "or val/verifier/pass_at_8, got .*/pass_at_4"),
        (study("budget.grpo.validation_problems=0"), "budget.grpo.validation_problems is 0, but the curve is"),
        (
            study("policy.pretrained=null"),
            "policy.pretrained is null and so is s.start: give the study a start, .* with seed: each where each seed",
        ),
    ],
)
def test_an_arm_that_leaves_nothing_to_compare_is_refused(asked: Study, sentence: str) -> None:
    with pytest.raises(StudyError, match=f"arm better: .*{sentence}"):
        check_comparable(asked, [job for job in jobs_of(asked, {}) if job.arm == "better"])


@pytest.mark.parametrize("curve", ["accuracy", SAMPLED, "pass_at_4"])
def test_what_can_be_compared_passes(curve: str) -> None:
    asked = study("rollout.validation_samples=4", "budget.evaluate.samples=4", metric=SAMPLED, curve=curve)
    check_comparable(asked, jobs_of(asked, {})[1:])


def test_a_policy_that_the_start_makes_is_enough() -> None:
    asked = study("policy.pretrained=null")
    started = replace(asked, start=Start(overrides=[], seed=0))
    config = composed(jobs_of(asked, {})[-1])
    assert "policy.pretrained is null" in str(lacking(asked, config))
    assert "policy.pretrained is null" not in str(lacking(started, config))


@pytest.mark.parametrize("address", [None, "nowhere://at-all"])
def test_failed_jobs_are_named_also_where_the_report_fails(
    address: str | None, tracker: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The study has no runs; then there is not even an MLflow."""
    if address is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert close(study(), {"better seed 0": Path("better-0.log")}, sent=None) == 1
    assert capsys.readouterr().out.endswith("better seed 0: FAILED, see better-0.log\n")
