"""Records of a run: its command line, machine and packages, and the cause of a failure."""

from __future__ import annotations

import json
import platform
from importlib.metadata import distribution
from pathlib import Path

import torch
from hydra import compose
from hydra.core.hydra_config import HydraConfig
from packaging.requirements import Requirement

from experiments.run_folder.reader import Origin, read_json
from experiments.run_folder.record import environment, installed_packages, new_run_folder, write_failure
from experiments.schema import composing

OVERRIDES = ["experiment=llama_critic", "reward.weight=0.25", "seed=3", "policy.corpus.plays=50"]


def test_new_run_folder_records_command_line_and_packages(tmp_path: Path) -> None:
    overrides = [*OVERRIDES, f"output_dir={tmp_path}"]
    with composing():
        HydraConfig.instance().set_config(compose("config", overrides, return_hydra_config=True))
        try:
            config = compose("config", overrides)
            folder = new_run_folder(config, overrides=overrides, about={"llama_critic": "what it is for"})
            again = new_run_folder(config, overrides=overrides, about={})
        finally:
            HydraConfig.instance().cfg = None
    origin = Origin.parse((folder / "origin.json").read_bytes())
    assert origin.overrides == overrides
    assert origin.about == "what it is for"
    assert origin.packages["torch"] == torch.__version__
    assert len({origin.id, Origin.parse((again / "origin.json").read_bytes()).id, ""}) == 3, "each has an id"
    assert read_json(folder / "choices.json")["experiment"] == "llama_critic"
    assert json.loads((folder / "environment.json").read_text()) == environment()


def test_installed_packages_lists_each_package_with_its_version() -> None:
    lines = [line.partition("  # ") for line in installed_packages().splitlines()]
    locked = {Requirement(line): remark for line, _, remark in lines}
    assert len({one.name.lower() for one in locked}) == len(lines)
    assert {"torch", "mlflow", "hydra-core"} <= {one.name for one in locked}
    for one, remark in locked.items():
        assert one.url is None, "an address may hold a login"
        version = distribution(one.name).version
        assert str(one.specifier) == f"=={version.partition('+')[0]}"
        assert remark == (version if "+" in version else "")
    assert "contrastive-reasoning" not in {one.name for one in locked}, "no index has it"
    assert [one.name.lower() for one in locked] == sorted(one.name.lower() for one in locked)


def test_environment_describes_machine_without_hostname() -> None:
    described = environment()
    assert described["python"].endswith(platform.python_version())
    assert len(described["accelerators"]) == torch.cuda.device_count()
    assert 500 < described["memory_megabytes"] < 10**8
    assert platform.node() not in described["system"]


def test_write_failure_keeps_first_cause(tmp_path: Path) -> None:
    write_failure(tmp_path, ValueError("no number\nat all"))
    write_failure(tmp_path, ConnectionError("what the other ranks raise then"))
    assert read_json(tmp_path / "failure.json")["cause"] == "ValueError: no number"
    write_failure(tmp_path / "failure.json" / "below", ValueError("it cannot be written, and hides no other"))
