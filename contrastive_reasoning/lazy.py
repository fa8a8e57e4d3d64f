"""Lazy imports (PEP 562): a package imports a name on first use, so that one part does not load its siblings."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any


def lazy_getattr(package: str) -> Callable[[str], Any]:
    """The ``__getattr__`` of a package whose ``__init__`` imports its re-exports only for type checkers."""
    source = Path(str(sys.modules[package].__file__)).read_text(encoding="utf-8")
    # walked, because the imports stand under ``if TYPE_CHECKING``
    imports = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.ImportFrom)]
    homes = {name.name: str(node.module) for node in imports for name in node.names}

    def load(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(homes[name]), name)
        setattr(sys.modules[package], name, value)
        return value

    return load
