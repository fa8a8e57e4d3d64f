"""What a run tells of its machine and packages."""

from __future__ import annotations

import json
import platform
from importlib.metadata import distribution

import torch
from packaging.requirements import Requirement

from experiments.tracking.environment import environment, installed


def test_every_package_is_there_with_its_version_and_nothing_else() -> None:
    lines = [line.partition("  # ") for line in installed().splitlines()]
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


def test_the_machine_is_described_in_plain_values() -> None:
    told = json.loads(json.dumps(environment()))
    assert told["python"].endswith(platform.python_version())
    assert told["torch"] == torch.__version__
    assert len(told["accelerators"]) == torch.cuda.device_count()
    assert 500 < told["memory_megabytes"] < 10**8
    assert platform.node() not in told["system"]
