"""The user's code as it was planned: a hash of its syntax, and imports that accept no other code.

    plan ── module: (file, hash) ──► ``expect`` in the run ──► ``expect`` in each worker ──► imports, checked

A worker imports the user's function by its name, perhaps hours after the run was planned and again after each timeout;
and functions import modules when they are called.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Mapping, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any, NamedTuple

LENGTH = 12


class PlannedSource(NamedTuple):
    """One module of the user when the run was planned."""

    file: str
    digest: str
    """The ``tree_hash`` of its code."""


class ChangedCode(BaseException):
    """Raised by an import of code that differs from the plan.

    Not an ``Exception``: a user's ``except Exception`` or ``except ImportError`` must not continue without that module.
    """


_expected: dict[str, PlannedSource] = {}


def expect(sources: Mapping[str, PlannedSource]) -> None:
    """Lets this process import the modules of ``sources`` only from their file and with their hash.

    Later imports raise ``ChangedCode`` for other code, also those within functions. Replaces what was expected before.
    """
    _expected.clear()
    _expected.update(sources)
    if not any(isinstance(finder, _PlannedFinder) for finder in sys.meta_path):
        sys.meta_path.insert(0, _PlannedFinder())


def expected() -> dict[str, PlannedSource]:
    """Returns module → planned source, of the last ``expect``."""
    return dict(_expected)


class _PlannedFinder(MetaPathFinder):
    def find_spec(self, fullname: str, path: Sequence[str] | None, target: Any = None) -> ModuleSpec | None:
        if fullname not in _expected:
            return None
        return spec_from_file_location(fullname, loader=_PlannedLoader(fullname, _expected[fullname].file))


class _PlannedLoader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        # not the parent's: cached bytecode may be older, since it is compared by size and whole seconds
        try:
            content = Path(self.path).read_bytes()
        except OSError as error:
            raise ChangedCode(f"{self.path} cannot be read ({error.strerror}); the run was planned with it") from error
        if source_hash(content) != _expected[fullname].digest:
            raise ChangedCode(f"{self.path} has changed since the run was planned; run it again")
        return self.source_to_code(content, self.path)


def source_hash(content: bytes) -> str:
    """Hash of a module's syntax; of its bytes if it cannot be parsed."""
    try:
        return tree_hash(ast.parse(content))
    except (SyntaxError, ValueError):  # importing it will raise
        return hashlib.sha256(content).hexdigest()[:LENGTH]


def tree_hash(tree: ast.AST) -> str:
    """Hash of a syntax tree without docstrings; equal in every Python version."""
    return hashlib.sha256(_canonical(tree).encode()).hexdigest()[:LENGTH]


def _canonical(tree: ast.AST) -> str:
    words: list[str] = []

    def write(node: Any) -> None:
        if isinstance(node, ast.Constant):
            words.append(repr(node.value))
        elif isinstance(node, ast.AST):
            words.append(f"{type(node).__name__}(")
            for name in node._fields:
                # empty fields are left out, since newer Pythons add some (type_params) and would change the hash;
                # ast.dump leaves them out from Python 3.13 on only
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
