"""The commands of a report, which make its runs again."""

from __future__ import annotations

import shlex

from experiments.analysis.report.commands import command, command_over_seeds, commits, study_command
from experiments.analysis.runs import arms_by
from tests.unit.experiments.comparison_kit import finished


def test_a_command_is_safe_to_paste() -> None:
    typed = ["experiment=x", "policy.pretrained=a b; rm -rf ~", "stages=[grpo, evaluate]"]
    assert shlex.split(command(typed)) == ["python", "-m", "experiments.run", *typed]


def test_runs_that_differ_by_seed_alone_are_one_multirun() -> None:
    typed = {"0": ["experiment=x", "seed=0"], "10": ["experiment=x", "seed=10"], "2": ["seed=2", "experiment=x"]}
    assert command_over_seeds(typed) == "python -m experiments.run -m experiment=x seed=0,2,10"
    assert command_over_seeds({"0": ["experiment=x"]}) == "python -m experiments.run experiment=x seed=0"
    typed["2"].append("reward.weight=0.1")
    assert command_over_seeds(typed) is None


def test_a_job_of_a_sweep_is_run_again_alone() -> None:
    typed = ["experiment=x", "sweep=objective", "objective=gspo", "seed=0"]
    assert command(typed) == "python -m experiments.run experiment=x objective=gspo seed=0"
    together = command_over_seeds({"0": typed, "1": [*typed[:-1], "seed=1"]})
    assert together == "python -m experiments.run -m experiment=x objective=gspo seed=0,1"


def test_commits_and_studies_are_named_beside_the_commands() -> None:
    runs = [finished("my_study", seed=s, params={"arm": "critic"}, git_sha=f"abc{s}-dirty") for s in (0, 4)]
    (arm,) = arms_by(runs, ["arm"])
    changed = "with changes that were not committed"
    assert commits(arm) == [f"# at abc0 {changed}, abc4 {changed}"]
    assert study_command(arm) == "python -m experiments.study my_study only=critic seeds=5"
    (alone,) = arms_by([finished("llama_critic", seed=0, params={"arm": "null"})], ["experiment"])
    assert study_command(alone) is None
