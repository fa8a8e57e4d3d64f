"""The commands of a report, which make its runs again."""

from __future__ import annotations

import shlex

from experiments.tracking.origin import command, command_over_seeds


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
