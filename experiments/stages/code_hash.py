"""Hashes of the code that affects a stage's result: module → hash of its syntax tree without docstrings and comments.

    targets of the configuration, driver ──► modules that define them ──► modules that these import ──► …

``contrastive_reasoning.losses.InfoNCE`` leads to the module that defines it, not to the package that re-exports it. If
a name cannot be resolved (star imports, attributes of an imported package, computed module names), the whole package
counts. Libraries are pinned and not hashed. The user's own code outside this project is hashed like ours.
"""

from __future__ import annotations

import ast
import hashlib
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from experiments.import_paths import is_ours

DRIVERS = ("experiments.stages.train", "experiments.stages.evaluate", "experiments.assemble")
"""The modules of ``experiments`` that affect results; the others plan, check, record or display."""
WATCHING = ("contrastive_reasoning.progress", "contrastive_reasoning.published")
"""Packages that only display something."""
INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
DOTTED = re.compile(r"\w+(\.\w+)+")
LENGTH = 12


class Parsed(NamedTuple):
    """One module's code."""

    digest: str
    imports: frozenset[str]
    """Dotted paths that it imports, including imports in functions; ``package.*`` is the whole package."""
    exports: Mapping[str, str]
    """Imported name → its dotted path, at the top level or for type checkers."""
    defines: frozenset[str]
    """Names assigned or defined at the top level."""


def code_hashes(config: Any, drivers: Iterable[str] = ()) -> dict[str, str]:
    """Returns module → hash, sorted by name.

    Args:
        config: resolved configuration of the stage; the search starts at its ``_target_`` values.
        drivers: dotted paths of the functions that build and run the stage.
    """
    used, left = set[str](), {module for path in (*all_targets(config), *drivers) for module in defining(path)}
    while left:
        module = left.pop()
        used.add(module)
        left |= {found for path in parse_module(module).imports for found in defining(path)} - used
    return {module: parse_module(module).digest for module in sorted(used)}


def changed_modules(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """Returns the modules whose code differs or that are in only one of the two."""
    return sorted(module for module in now.keys() | then.keys() if now.get(module) != then.get(module))


def all_targets(config: Any) -> Iterator[str]:
    """Yields every ``_target_`` in a resolved configuration, including those of libraries."""
    if isinstance(config, Mapping):
        if "_target_" in config:
            yield str(config["_target_"])
        config = [value for key, value in config.items() if key != "_target_"]
    if isinstance(config, list | tuple):
        for value in config:
            yield from all_targets(value)


def defining(path: str) -> set[str]:
    """Returns the modules that define a dotted path; empty for libraries, unknown names and code without effect."""
    parts = path.split(".")
    lengths = (length for length in range(len(parts), 0, -1) if module_file(".".join(parts[:length])) is not None)
    length = next(lengths, 0)
    module, names = ".".join(parts[:length]), parts[length:]
    if not module or _decides_nothing(module):
        return set()
    if not _is_package(module):
        above, _, own = module.rpartition(".")
        return {module} if names else {module} | _find_exports(above, own)  # a function may be named like its module
    name = names[0] if names else "*"
    if exported := _find_exports(module, name):
        return exported
    return {module} if name in parse_module(module).defines else _all_modules(module)


def _decides_nothing(module: str) -> bool:
    if module.partition(".")[0] == "experiments":
        return module not in DRIVERS
    return any(f"{module}.".startswith(f"{package}.") for package in WATCHING)


def _find_exports(package: str, name: str) -> set[str]:
    """Returns the modules that define a name re-exported by a package."""
    if not package or not _is_package(package) or (path := parse_module(package).exports.get(name)) is None:
        return set()
    return {path} if path == f"{package}.{name}" else defining(path)


def _all_modules(package: str) -> set[str]:
    folder = _file_of(package).parent
    parts = (path.relative_to(folder).with_suffix("").parts for path in folder.rglob("*.py"))
    return {".".join([package, *path]).removesuffix(".__init__") for path in parts}


def module_file(module: str) -> Path | None:
    """Returns the file of a module of this project or of the user; None for a library. Imports nothing."""
    first, *inner = module.split(".")
    package = _root(first)
    if package is None or not inner:
        return package
    folder = package.parent.joinpath(*inner)
    candidates = (folder / "__init__.py", folder.with_suffix(".py"))
    return next((file for file in candidates if package.name == "__init__.py" and file.is_file()), None)


@cache
def _root(name: str) -> Path | None:
    try:
        spec = find_spec(name)  # imports nothing for a name without dots
    except (ImportError, ValueError):  # ``__main__``
        return None
    if spec is None or spec.origin is None or not spec.has_location:
        return None
    file = Path(spec.origin)
    return file if is_ours(name) or not _is_library(file) else None


def _is_library(file: Path) -> bool:
    """Returns whether a package or module was installed, also into a folder of its own (``pip install --target``)."""
    place = (file.parent if file.name == "__init__.py" else file).parent
    return any(file.is_relative_to(folder) for folder in INSTALLED) or any(place.glob("*.dist-info"))


def _file_of(module: str) -> Path:
    file = module_file(module)
    assert file is not None, f"no module {module}"
    return file


def _is_package(module: str) -> bool:
    file = module_file(module)  # None for a folder without __init__.py, whose modules can be imported too
    return file is not None and file.name == "__init__.py"


def parse_module(module: str) -> Parsed:
    """Returns the module's current code; cached until its file changes."""
    file = _file_of(module)
    return _parse(module, file, file.stat().st_mtime_ns)


@cache
def _parse(module: str, file: Path, changed: int) -> Parsed:
    content = file.read_bytes()
    try:
        tree = ast.parse(content)
    except (SyntaxError, ValueError):  # the user's own module; building it will raise
        return Parsed(hashlib.sha256(content).hexdigest()[:LENGTH], frozenset(), {}, frozenset())
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    exports, defines = dict[str, str](), set[str]()
    for node in tree.body:
        if _for_type_checkers(node):
            exports |= {name: path for part in ast.walk(node) for name, path in _bindings(part, package)}
        exports |= dict(_bindings(node, package))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            defines.add(node.name)
        else:
            names = (part for part in ast.walk(node) if isinstance(part, ast.Name))
            defines |= {name.id for name in names if isinstance(name.ctx, ast.Store)}
    digest = hashlib.sha256(_canonical(tree).encode()).hexdigest()[:LENGTH]
    return Parsed(digest, frozenset(_imports(tree, package)), exports, frozenset(defines))


def _for_type_checkers(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and _last_name(node.test) == "TYPE_CHECKING"


def _last_name(node: ast.AST) -> str:
    """Returns the last name of a dotted expression: ``TYPE_CHECKING`` of ``typing.TYPE_CHECKING``."""
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _bindings(node: ast.AST, package: str) -> Iterator[tuple[str, str]]:
    """Yields (name, dotted path) of an import statement."""
    if isinstance(node, ast.ImportFrom):
        above = package.split(".")[: len(package.split(".")) - node.level + 1] if node.level else []
        origin = ".".join([*above, *([node.module] if node.module else [])])
        yield from ((name.asname or name.name, f"{origin}.{name.name}") for name in node.names)
    elif isinstance(node, ast.Import):
        yield from ((name.asname or name.name.partition(".")[0], name.name) for name in node.names)


def _imports(tree: ast.AST, package: str) -> set[str]:
    """Returns the dotted paths of run-time imports and of modules named in strings, for example for ``python -m``."""
    found, left = set[str](), [tree]
    while left:
        node = left.pop()
        if _for_type_checkers(node):
            continue
        found |= {path for _, path in _bindings(node, package)}
        if isinstance(node, ast.Constant):
            named = node.value if isinstance(node.value, str) and DOTTED.fullmatch(node.value) else ""
            if is_ours(named) and module_file(named) is not None and not _is_package(named):
                found.add(named)
        elif isinstance(node, ast.Call) and _last_name(node.func) in ("import_module", "__import__"):
            first = node.args[0] if node.args else None
            found.add(str(first.value) if isinstance(first, ast.Constant) else f"{package}.*")
        left += ast.iter_child_nodes(node)
    return found


def _canonical(tree: ast.AST) -> str:
    """Writes a syntax tree as text that is equal in every Python version; docstrings are left out."""
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
