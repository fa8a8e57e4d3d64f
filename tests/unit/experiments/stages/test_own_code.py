"""An edited file of one's own is another configuration; the house's and installed ones are told by other means."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.stages.code_hash import own_files
from experiments.stages.plan import file_hashes


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """my_code_alone.py, and a package with a module in a package."""
    (tmp_path / "my_code_package" / "inner").mkdir(parents=True)
    for name in ("my_code_alone", "my_code_package/__init__", "my_code_package/inner/__init__"):
        (tmp_path / f"{name}.py").write_text("def brevity(problem, completion):\n    return 1.0\n")
    (tmp_path / "my_code_package" / "inner" / "deep.py").write_text("raise RuntimeError('it is not to be run')\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("my_code_")]:
        del sys.modules[name]


def found(*targets: str) -> dict[str, Path]:
    config: Any = {"parts": [{"_target_": target} for target in targets]}
    return own_files(config)


@pytest.mark.parametrize(
    ("target", "file"),
    [
        ("my_code_alone.brevity", "my_code_alone.py"),
        ("my_code_alone.Class.make", "my_code_alone.py"),
        ("my_code_package.brevity", "my_code_package/__init__.py"),
        ("my_code_package.inner.brevity", "my_code_package/inner/__init__.py"),
        ("my_code_package.inner.deep.brevity", "my_code_package/inner/deep.py"),
    ],
)
def test_a_name_leads_to_the_file_of_its_module_which_is_not_run(folder: Path, target: str, file: str) -> None:
    assert found(target) == {target: folder / file}


@pytest.mark.parametrize(
    "target",
    [
        "contrastive_reasoning.rewards.FunctionReward",
        "torch.optim.AdamW",
        "collections.OrderedDict",
        "math.sqrt",
        "builtins.dict",
        "no_such_module.f",
        "my_code_nowhere",
    ],
)
def test_the_house_the_installed_and_the_missing_are_not_ones_own(folder: Path, target: str) -> None:
    assert found(target) == {}


def test_an_edit_is_another_hash_among_those_that_decide_a_stage(folder: Path) -> None:
    relevant = {"reward": {"function": {"_target_": "my_code_alone.brevity"}}}
    before = file_hashes(relevant, {})
    assert set(before) == {"my_code_alone.brevity"}
    assert file_hashes(relevant, {}) == before
    (folder / "my_code_alone.py").write_text("def brevity(problem, completion):\n    return 2.0\n")
    assert file_hashes(relevant, {}) != before
