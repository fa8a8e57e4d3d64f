"""What a run tells of its machine and packages."""

from __future__ import annotations

import json
import platform
from importlib.metadata import distribution, version

import torch
from packaging.requirements import Requirement

from experiments.environment import environment, installed


def test_every_package_is_there_with_its_version_and_nothing_else() -> None:
    lines = installed().splitlines()
    locked = [Requirement(line) for line in lines]
    assert len({one.name.lower() for one in locked}) == len(lines)
    assert {f"{name}=={version(name)}" for name in ("torch", "mlflow", "hydra-core")} <= set(lines)
    for one in locked:
        assert one.url is None, "an address may hold a login"
        assert str(one.specifier) == f"=={distribution(one.name).version}"
    assert [one.name.lower() for one in locked] == sorted(one.name.lower() for one in locked)


def test_the_machine_is_described_in_plain_values() -> None:
    told = json.loads(json.dumps(environment()))
    assert told["python"].endswith(platform.python_version())
    assert told["torch"] == torch.__version__
    assert len(told["accelerators"]) == torch.cuda.device_count()
    assert 500 < told["memory_megabytes"] < 10**8
    assert platform.node() not in told["system"]
