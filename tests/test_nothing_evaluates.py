"""The product never turns text into code or objects: it does not call the functions that do so."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.test_imports import ROOT, product_files

NEVER = {
    *("eval", "exec", "compile", "__import__", "ast.literal_eval", "literal_eval"),
    *("pickle.load", "pickle.loads", "pickle.Unpickler", "dill.load", "dill.loads", "joblib.load", "marshal.loads"),
    *("shelve.open", "yaml.load", "yaml.load_all", "yaml.unsafe_load", "yaml.full_load"),
    *("os.system", "os.popen", "subprocess.getoutput", "subprocess.getstatusoutput", "runpy.run_path"),
    *("sympify", "sympy.sympify", "parse_expr", "lambdify", "pandas.read_pickle"),
}
"""Full names, with ``import … as`` resolved."""
ONLY_WITH = {"torch.load": ("weights_only", True), "numpy.load": ("allow_pickle", False)}
"""Readers that are safe only with an explicit argument; Lightning's need one with a checkpoint."""
WRITER = ".save_checkpoint"
"""Lightning's, whose ``weights_only`` selects what is saved."""
ONLY_IN = {
    "ast.parse": {
        "contrastive_reasoning/lazy.py",
        "contrastive_reasoning/tasks/countdown/longproc.py",
        "contrastive_reasoning/workers/planned_code.py",
        "experiments/stages/code_hash.py",
    },
    "pickle.loads": {"contrastive_reasoning/workers/functions.py"},
}
"""Allowed: trees of source files and annotations; a bounded line of a completion, only to check that it parses; and
messages to a worker from its own parent."""


def names(tree: ast.AST) -> dict[str, str]:
    """Returns local name → full name, for every import of a file."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {name.asname or name.name.partition(".")[0]: name.asname and name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {name.asname or name.name: f"{node.module}.{name.name}" for name in node.names}
    return {local: full or local for local, full in found.items()}


def calls(source: str) -> Iterator[tuple[str, ast.Call]]:
    """Yields every call of a file with its dotted name."""
    tree = ast.parse(source)
    known = names(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            head, dot, rest = ast.unparse(node.func).partition(".")
            yield f"{known.get(head, head)}{dot}{rest}", node


def faults(source: str, path: str = "a.py") -> list[str]:
    """Returns the forbidden calls of a file."""
    found = []
    for name, call in calls(source):
        spelled = {word.arg: word.value.value for word in call.keywords if isinstance(word.value, ast.Constant)}
        never = name in NEVER or name.endswith((".literal_eval", ".unsafe_load"))
        if path not in ONLY_IN.get(name, set() if never else {path}):
            found.append(f"{path}:{call.lineno} calls {name}")
        of_lightning = ("weights_only", True) if "ckpt_path" in {word.arg for word in call.keywords} else None
        needed = ONLY_WITH.get(name, of_lightning)
        if needed is not None and spelled.get(needed[0]) is not needed[1]:
            found.append(f"{path}:{call.lineno} calls {name} without {'='.join(map(str, needed))}")
        elif spelled.get("weights_only") is False and not name.endswith(WRITER):
            found.append(f"{path}:{call.lineno} calls {name} with weights_only=False")
        if spelled.get("trust_remote_code") or spelled.get("shell"):
            found.append(f"{path}:{call.lineno} calls {name} with trust_remote_code or shell")
    return found


def trusting(source: str) -> list[str]:
    """Returns the functions and fields that have a default for ``trust_remote_code``."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            defaults = [*zip(node.args.kwonlyargs, node.args.kw_defaults, strict=True)]
            plain = [*node.args.posonlyargs, *node.args.args]
            plain = plain[len(plain) - len(node.args.defaults) :]
            defaults += zip(plain, node.args.defaults, strict=True)
            found += [node.name for word, value in defaults if word.arg == "trust_remote_code" and value is not None]
        elif isinstance(node, ast.AnnAssign) and ast.unparse(node.target).endswith("trust_remote_code"):
            found += ["a field"] if node.value is not None else []
    return found


def test_product_does_not_evaluate_text() -> None:
    sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in product_files()}
    assert [fault for path, source in sources.items() for fault in faults(source, path)] == []
    assert {path: found for path, source in sources.items() if (found := trusting(source))} == {}


def test_configurations_do_not_trust_remote_code() -> None:
    lines = [line.strip() for path in sorted((ROOT / "conf").rglob("*.yaml")) for line in path.read_text().splitlines()]
    settings = [line for line in lines if "trust_remote_code" in line and not line.startswith("#")]
    assert settings
    assert set(settings) == {"trust_remote_code: false"}
    assert "trust_remote_code" not in (ROOT / "conf" / "options.py").read_text()


@pytest.mark.parametrize(
    "source",
    [
        "eval('1')",
        "import ast\nast.literal_eval('1')",
        "from ast import literal_eval as read\nread('1')",
        "import yaml as y\ny.load('')",
        "import pickle\npickle.loads(b'')",
        "import torch\ntorch.load('a')",
        "import torch\ntorch.load('a', weights_only=False)",
        "from torch import load\nload('a')",
        "trainer.fit(module, ckpt_path=path)",
        "trainer.fit(module, ckpt_path=path, weights_only=False)",
        "GRPO.load_from_checkpoint('a', weights_only=False)",
        "import numpy as np\nnp.load('a', allow_pickle=True)",
        "import subprocess\nsubprocess.run('ls', shell=True)",
        "AutoModel.from_pretrained('a', trust_remote_code=True)",
        "import ast\nast.parse('1')",
        "import os\nos.system('ls')",
    ],
)
def test_faults_finds_each_forbidden_call(source: str) -> None:
    assert len(faults(source)) == 1


@pytest.mark.parametrize(
    "source", ["def load(*, trust_remote_code: bool = True): ...", "class A:\n    trust_remote_code: bool = False"]
)
def test_trusting_finds_trust_remote_code_defaults(source: str) -> None:
    assert trusting(source)


def test_faults_accepts_safe_calls() -> None:
    assert not faults("import torch, yaml\ntorch.load('a', weights_only=True)\nyaml.safe_load('')\nmodel.eval()")
    assert not faults("trainer.save_checkpoint('a', weights_only=False)")
