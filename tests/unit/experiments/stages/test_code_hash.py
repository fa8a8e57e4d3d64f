"""Which modules affect a result, and which edits change their hashes, with real packages in a folder."""

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
    "own_code/no_init/three.py": "THREE = 3\n",
    "own_alone.py": "from own_code import loss\nfrom math import sqrt\ndef brevity(x):\n    return sqrt(loss(x))\n",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name, content in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(content)
    monkeypatch.syspath_prepend(tmp_path)
    clear_cache()
    yield tmp_path
    clear_cache()
    assert not [name for name in sys.modules if name.partition(".")[0] in ("own_code", "own_alone")]


def clear_cache() -> None:
    """Clears cached module locations, because every test writes the modules again."""
    code_hash._root.cache_clear()


INIT = {"own_code"}
"""Runs before each module of the package; the names that it imports from its modules are not followed."""
LAZY = {"own_code.lazy", "own_code.lazy.one", "own_code.lazy.two"}
CHECKED = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n"


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
        ("own_code.lazy.one.ONE", {"lazy", "lazy.one"}),
    ],
)
def test_target_leads_to_defining_module_and_its_imports(folder: Path, target: str, modules: set[str]) -> None:
    assert set(hashes(target)) == INIT | {f"own_code.{module}" for module in modules}


@pytest.mark.parametrize(
    ("code", "modules"),
    [
        ("from own_code.constants import *", {"own_code.constants"}),
        ("from own_code.lazy import *", LAZY),
        ("import own_code.lazy as x", LAZY),
        ("from importlib import import_module\nx = import_module('own_code.late')", {"own_code.late"}),
        ("class A:\n    def f(self):\n        import own_code.constants", {"own_code.constants"}),
        ("WORKER = 'contrastive_reasoning.ranges'", {"contrastive_reasoning.ranges"}),
        ("import torch, numpy.linalg\nfrom lightning import Trainer", set()),
        ("from own_code.no_init.three import THREE\nf = THREE", {"own_code.no_init.three"}),
        (f"{CHECKED}    f = 1\nelse:\n    from own_code.types_only import f", {"own_code.types_only"}),
        (
            "F = ['-m', 'own_code.worker_tools']\nRULE = 'own_code.late.shift'",
            {"own_code.worker_tools", "own_code.late"},
        ),
    ],
)
def test_every_form_of_import_is_followed(folder: Path, code: str, modules: set[str]) -> None:
    (folder / "own_alone.py").write_text(code)
    assert set(hashes("own_alone.f")) - INIT == {"own_alone", *modules}


def test_init_of_package_and_modules_that_it_imports_are_hashed(folder: Path) -> None:
    init = folder / "own_code/__init__.py"
    init.write_text("from own_code.formula import loss\nfrom own_code import late\n")
    assert set(hashes("own_code.constants.TAU")) == {"own_code", "own_code.constants", "own_code.late"}


def test_folders_without_init_are_followed_like_packages(folder: Path) -> None:
    (folder / "plain/deep").mkdir(parents=True)
    (folder / "plain/deep/reward.py").write_text("from plain.deep.helper import scale\ndef f(): return scale\n")
    (folder / "plain/deep/helper.py").write_text("scale = 1\n")
    before = hashes("plain.deep.reward.f")
    assert set(before) == {"plain.deep.reward", "plain.deep.helper"}
    (folder / "plain/deep/helper.py").write_text("# words\nscale = 1\n")
    assert hashes("plain.deep.reward.f") == before
    (folder / "plain/deep/helper.py").write_text("scale = 2\n")
    assert changed_modules(hashes("plain.deep.reward.f"), before) == ["plain.deep.helper"]
    assert hashes("plain.f") == {}


@pytest.mark.parametrize(
    ("node", "modules"),
    [
        ({"_target_": "hydra.utils.get_method", "path": "own_alone.brevity"}, {"own_alone", "own_code.formula"}),
        ({"_target_": "hydra.utils.get_object", "path": "own_code.constants.TAU"}, {"own_code.constants"}),
        ({"_target_": "torch.nn.Linear", "_partial_": True, "rule": ["own_code.late.shift"]}, {"own_code.late"}),
        ({"_target_": "collections.OrderedDict", "module": "own_alone"}, {"own_alone", "own_code.formula"}),
        ({"_target_": "collections.OrderedDict", "entry": "own_code.late:shift"}, {"own_code.late"}),
        ({"_target_": "datamodules.plays.Plays", "rule": "own_code.late.shift"}, {"own_code.late"}),
    ],
)
def test_code_named_by_other_strings_of_a_node_is_hashed(folder: Path, node: Any, modules: set[str]) -> None:
    assert modules <= set(code_hashes({"part": node}))


@pytest.mark.parametrize(
    "code",
    [
        "import importlib\nshift = importlib.import_module(f'own_code.{1}')",
        "from hydra.utils import instantiate\nshift = instantiate",
        "from pkgutil import resolve_name\nshift = resolve_name",
    ],
)
def test_computed_import_includes_whole_package(folder: Path, code: str) -> None:
    (folder / "own_code/late.py").write_text(code)
    assert {"own_code.other", "own_code.types_only", "own_code.lazy.two"} <= set(hashes("own_code.late.shift"))


@pytest.mark.parametrize(
    "code",
    [
        "import importlib\nf = importlib.import_module(f'rule_{1}')",
        "from importlib import import_module as load\nf = load('rule_1')",
        "from importlib.util import spec_from_file_location\nf = spec_from_file_location('x', 'rule_1.py')",
        "import runpy\nf = runpy.run_path('rule_1.py')",
        "f = exec(open('rule_1.py').read())",
        "from hydra.utils import get_method\ndef f(name): return get_method(name)",
    ],
)
@pytest.mark.parametrize("place", ["", "plain"])
def test_computed_import_includes_whole_folder_of_module(folder: Path, place: str, code: str) -> None:
    (folder / place).mkdir(exist_ok=True)
    (folder / place / "rule_1.py").write_text("RULE = 1\n")
    (folder / place / "own_loading.py").write_text(code)
    (folder / place / ".venv").mkdir()
    (folder / place / ".venv/hidden.py").write_text("")
    inside = f"{place}." if place else ""
    found = set(hashes(f"{inside}own_loading.f"))
    assert {f"{inside}own_loading", f"{inside}rule_1"} <= found
    assert not [name for name in found if "hidden" in name]


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
def test_hash_changes_with_code_but_not_with_comments_or_docstrings(
    folder: Path, file: str, old: str, new: str, changes: bool
) -> None:
    before, path = hashes("own_alone.brevity"), folder / "own_code" / f"{file}.py"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    after = hashes("own_alone.brevity")
    assert changed_modules(after, before) == ([f"own_code.{file}"] if changes else [])
    assert len(before["own_alone"]) == 12


@pytest.mark.parametrize(
    ("file", "code"), [("late", "import Shape\nshift = 1.0\n"), ("__init__", "import Shape as loss\n")]
)
def test_import_added_after_first_hash_is_followed(folder: Path, file: str, code: str) -> None:
    assert "own_code.types_only" not in hashes("own_alone.brevity")
    (folder / "own_code" / f"{file}.py").write_text(f"from own_code.types_only {code}")
    assert "own_code.types_only" in hashes("own_alone.brevity")


def test_unparsable_module_is_hashed_by_its_bytes(folder: Path) -> None:
    (folder / "own_alone.py").write_text("def f(:\n")
    before = hashes("own_alone.f")
    (folder / "own_alone.py").write_text("def f(::\n")
    assert changed_modules(hashes("own_alone.f"), before | {"used_then": "0"}) == ["own_alone", "used_then"]


def test_libraries_and_missing_modules_are_not_hashed(folder: Path) -> None:
    assert hashes("torch.optim.AdamW", "collections.OrderedDict", "builtins.dict", "no_such.f", "f") == {}
    assert hashes("own_alone.brevity")
    (folder / "own_code-1.0.dist-info").mkdir()  # as pip install --target leaves a library in a folder of its own
    clear_cache()
    assert hashes("own_alone.brevity") == {}


def test_loss_is_hashed_as_its_module_and_progress_code_is_not_hashed() -> None:
    used = set(hashes("contrastive_reasoning.losses.InfoNCE"))
    assert "contrastive_reasoning.losses.info_nce" in used
    assert not used & {"contrastive_reasoning.losses", "contrastive_reasoning.losses.penalty"}
    trained = set(code_hashes({}, ["experiments.stages.train.grpo"]))
    assert {"experiments.stages.train", "experiments.assemble"} <= trained
    assert not [name for name in trained if name.startswith(("contrastive_reasoning.progress", "experiments.system"))]
    assert "contrastive_reasoning.stack_dump" not in code_hashes({}, ["experiments.stages.evaluate.evaluate"])
