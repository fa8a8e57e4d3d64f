from __future__ import annotations

import json
import shlex
from pathlib import Path

import torch
from hydra import compose, initialize_config_module
from hydra.core.hydra_config import HydraConfig

from experiments.cli.catalogue import FOLDER, catalogue
from experiments.schema import register
from experiments.tracking.origin import as_json, command, command_over_seeds, origin_of, parsed
from experiments.tracking.run_record import open_record

TYPED = ["experiment=llama_critic", "reward.weight=0.25", "seed=3", "policy.corpus.plays=50"]


def test_a_run_remembers_what_was_typed_and_on_what_it_ran(tmp_path: Path) -> None:
    register()
    with initialize_config_module("conf", version_base="1.3"):
        typed = [*TYPED, f"output_dir={tmp_path}"]
        HydraConfig.instance().set_config(compose("config", typed, return_hydra_config=True))
        try:
            record = open_record(compose("config", typed))
        finally:
            HydraConfig.instance().cfg = None
    origin = parsed((record.folder / "origin.json").read_bytes())
    assert list(origin.overrides) == typed
    assert origin.about == catalogue(FOLDER)["llama_critic"]
    assert origin.packages["torch"] == torch.__version__


def test_what_is_written_is_what_is_read() -> None:
    origin = origin_of(TYPED, "llama_critic")
    assert parsed(json.dumps(as_json(origin)).encode()) == origin
    assert origin_of([], "no_such").about == origin_of([], None).about == ""


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
