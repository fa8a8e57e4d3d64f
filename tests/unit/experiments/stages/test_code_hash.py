"""Which modules decide a result, and which edits of them another hash notices: real packages in a folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from experiments.stages import code_hash
from experiments.stages.code_hash import changed_modules, code_hashes

FILES = {
    "own_code/__init__.py": (
        "from own_code.formula import loss, scale as rescale\nfrom own_code.other import unused\nLIMIT = 3\n"
    ),
    "own_code/formula.py": (
        '"""Docstring."""\n'
        "from typing import TYPE_CHECKING\n"
        "from .constants import TAU\n"
        "if TYPE_CHECKING:\n    from own_code.types_only import Shape\n"
        "def loss(x):\n    '''Of x.'''\n    from own_code.late import shift\n    return (x / TAU) + shift\n"
        "def scale(x):\n    return x\n"
    ),
    "own_code/constants.py": "TAU = 0.5  # a comment\n'''What it means.'''\n",
    "own_code/late.py": "shift = 1.0\n",
    "own_code/other.py": "import own_code.worker_tools as tools\nunused = tools\n",
    "own_code/worker_tools.py": "",
    "own_code/types_only.py": "class Shape: ...\n",
    "own_code/lazy/__init__.py": "def __getattr__(name):\n    raise AttributeError(name)\n",
    "own_code/lazy/one.py": "ONE = 1\n",
    "own_code/lazy/two.py": "raise RuntimeError('it is not to be run')\n",
    "own_alone.py": "from own_code import loss\nfrom math import sqrt\ndef brevity(x):\n    return sqrt(loss(x))\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    forget()
    yield tmp_path
    forget()
    assert not [name for name in sys.modules if name.partition(".")[0] in ("own_code", "own_alone")]


def forget() -> None:
    """What one process has read of modules that a test writes anew."""
    code_hash._root.cache_clear()


def hashes(*targets: str) -> dict[str, str]:
    config: Any = {"parts": [{"_target_": target} for target in targets]}
    return code_hashes(config)


@pytest.mark.parametrize(
    ("target", "modules"),
    [
        ("own_code.loss", {"formula", "constants", "late"}),
        ("own_code.rescale", {"formula", "constants", "late"}),
        ("own_code.formula.loss", {"formula", "constants", "late"}),
        ("own_code.other.unused", {"other", "worker_tools"}),
        ("own_code.constants.TAU.real", {"constants"}),
        ("own_code.lazy.anything", {"lazy", "lazy.one", "lazy.two"}),
        ("own_code.lazy.one.ONE", {"lazy.one"}),
    ],
)
def test_a_name_leads_to_what_defines_it_and_to_what_that_imports(folder: Path, target: str, modules: set[str]) -> None:
    assert set(hashes(target)) == {f"own_code.{module}" for module in modules}


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("from own_code.constants import *", {"own_code.constants"}),
        ("from own_code.lazy import *", {"own_code.lazy", "own_code.lazy.one", "own_code.lazy.two"}),
        ("import own_code.lazy as x", {"own_code.lazy", "own_code.lazy.one", "own_code.lazy.two"}),
        ("from importlib import import_module\nx = import_module('own_code.late')", {"own_code.late"}),
        ("class A:\n    def f(self):\n        import own_code.constants", {"own_code.constants"}),
        ("WORKER = 'contrastive_reasoning.tasks.base'", {"contrastive_reasoning.tasks.base"}),
        ("import torch, numpy.linalg\nfrom lightning import Trainer", set()),
    ],
)
def test_every_way_to_import_counts(folder: Path, code: str, modules: set[str]) -> None:
    (folder / "own_alone.py").write_text(code)
    assert set(hashes("own_alone.f")) == {"own_alone", *modules}


def test_a_name_that_is_computed_counts_the_whole_package(folder: Path) -> None:
    (folder / "own_code/late.py").write_text("import importlib\nshift = importlib.import_module(f'own_code.{1}')\n")
    assert {"own_code.other", "own_code.types_only", "own_code.lazy.two"} <= set(hashes("own_code.late.shift"))


@pytest.mark.parametrize(
    ("file", "old", "new", "changes"),
    [
        ("formula", '"""Docstring."""', '"""Other words."""', False),
        ("formula", "'''Of x.'''", "", False),
        ("formula", "(x / TAU) + shift", "x / TAU + shift  # the same", False),
        ("constants", "'''What it means.'''", "'''More.'''", False),
        ("formula", "x / TAU", "x * TAU", True),
        ("formula", "x / TAU", "x / -TAU", True),
        ("constants", "0.5", "0.25", True),
        ("constants", "0.5", "'0.5'", True),
        ("late", "1.0", "1", True),
        ("late", "shift = 1.0", "shift = None", True),
    ],
)
def test_what_computes_otherwise_has_another_hash(folder: Path, file: str, old: str, new: str, changes: bool) -> None:
    before, path = hashes("own_alone.brevity"), folder / "own_code" / f"{file}.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    after = hashes("own_alone.brevity")
    assert changed_modules(after, before) == ([f"own_code.{file}"] if changes else [])
    assert len(before["own_alone"]) == 12


@pytest.mark.parametrize(
    ("file", "code", "module"),
    [
        ("late", "from own_code.types_only import Shape\nshift = 1.0\n", "own_code.types_only"),
        ("__init__", "from own_code.types_only import Shape as loss\n", "own_code.types_only"),
    ],
)
def test_an_import_that_was_added_since_the_first_look_is_followed(
    folder: Path, file: str, code: str, module: str
) -> None:
    assert module not in hashes("own_alone.brevity")
    (folder / "own_code" / f"{file}.py").write_text(code)
    assert module in hashes("own_alone.brevity")


def test_code_that_cannot_be_parsed_is_known_by_its_bytes(folder: Path) -> None:
    (folder / "own_alone.py").write_text("def f(:\n")
    before = hashes("own_alone.f")
    (folder / "own_alone.py").write_text("def f(::\n")
    assert changed_modules(hashes("own_alone.f"), before | {"used_then": "0"}) == ["own_alone", "used_then"]


@pytest.mark.parametrize("target", ["torch.optim.AdamW", "collections.OrderedDict", "builtins.dict", "no_such.f", "f"])
def test_libraries_and_what_is_not_there_are_not_looked_at(target: str) -> None:
    assert hashes(target) == {}


def test_of_ours_a_loss_is_its_module_and_what_only_watches_is_none() -> None:
    used = set(hashes("contrastive_reasoning.losses.InfoNCE"))
    assert "contrastive_reasoning.losses.info_nce" in used
    assert not used & {"contrastive_reasoning.losses", "contrastive_reasoning.losses.penalty"}
    trained = set(code_hashes({}, ["experiments.stages.train.grpo"]))
    assert {"experiments.stages.train", "experiments.assemble"} <= trained
    assert not [name for name in trained if name.startswith(("contrastive_reasoning.progress", "experiments.system"))]
