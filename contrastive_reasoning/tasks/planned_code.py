"""Hashes of source code, and the check of worker processes that they import the code with which a run was planned.

    plan ──► expect({file: hash}) ──► first input line of a worker ──► refuse_other_code({file: hash}, …)

The run's own process imports its modules when it plans. A worker imports them from the disk when it starts, perhaps
hours later, and when it replaces another one. A file that was edited in between would change the run.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

LENGTH = 12
_expected: dict[str, str] = {}


def expect(files: Mapping[str, str]) -> None:
    """Sets path → hash of the code that workers started from now on may import; other files are not checked."""
    _expected.clear()
    _expected.update({os.path.realpath(file): digest for file, digest in files.items()})


def expected() -> dict[str, str]:
    """Returns path → hash as set by ``expect``; empty outside a planned run."""
    return dict(_expected)


def refuse_other_code(files: Mapping[str, str], refuse: Callable[[str], None]) -> None:
    """Checks all modules that this process has imported or will import.

    Args:
        files: path → hash; see ``expected``.
        refuse: called with a sentence that names the file, before a module with another hash runs.
    """
    guard = _Guard(files, refuse)
    for module in [*sys.modules.values()]:
        guard.check(getattr(module, "__file__", None))
    sys.meta_path.insert(0, guard)


class _Guard(MetaPathFinder):
    def __init__(self, files: Mapping[str, str], refuse: Callable[[str], None]) -> None:
        self.files = files
        self.refuse = refuse

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        self.check(None if spec is None else spec.origin)
        return spec

    def check(self, file: str | None) -> None:
        path = os.path.realpath(file) if file else ""
        if path in self.files and (not os.path.isfile(path) or digest_of(Path(path).read_bytes()) != self.files[path]):
            self.refuse(f"{path} has changed since this run began; run it again")


def digest_of(content: bytes, tree: ast.Module | None = None) -> str:
    """Returns a hash of Python source that ignores docstrings, comments and formatting; ``tree``: if already parsed.

    It is equal in every Python version. Source that cannot be parsed is hashed by its bytes.
    """
    tree = tree or parse(content)
    canonical = content if tree is None else _canonical(tree).encode()
    return hashlib.sha256(canonical).hexdigest()[:LENGTH]


def parse(content: bytes) -> ast.Module | None:
    """Returns the syntax tree of Python source; None if it cannot be parsed, which importing it will report."""
    try:
        return ast.parse(content)
    except (SyntaxError, ValueError):
        return None


def _canonical(tree: ast.AST) -> str:
    words: list[str] = []

    def write(node: Any) -> None:
        if isinstance(node, ast.Constant):
            words.append(repr(node.value))
        elif isinstance(node, ast.AST):
            words.append(f"{type(node).__name__}(")
            for name in node._fields:
                if (value := getattr(node, name, None)) is not None and value != [] and name != "ctx":
                    words.append(name)
                    write(value)
            words.append(")")
        elif isinstance(node, list):
            for part in node:
                if not _is_text(part):
                    write(part)
            words.append(";")
        else:
            words.append(repr(node))

    write(tree)
    return " ".join(words)


def _is_text(node: Any) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
