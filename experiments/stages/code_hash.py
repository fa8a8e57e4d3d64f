"""Hashes of the code that affects a stage's result: module → hash of its syntax tree without docstrings and comments.

    names in the configuration, driver ──► modules that define them ──► modules that these import ──► …

Nothing is imported or built. ``contrastive_reasoning.losses.InfoNCE`` leads to the module that defines it, not to the
package that re-exports it. Of the user's code, the packages above a module count too, since importing it runs them.
A module that imports a name which is computed counts with all modules of its folder. Libraries are not hashed.
"""

from __future__ import annotations

import ast
import os
import re
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from contrastive_reasoning.tasks.planned_code import digest_of, parse
from experiments.import_paths import is_ours

DRIVERS = ("experiments.stages.train", "experiments.stages.evaluate", "experiments.assemble")
"""The modules of ``experiments`` that affect results; the others plan, check, record or display."""
WATCHING = ("contrastive_reasoning.progress", "contrastive_reasoning.published")
"""Packages that only display something."""
INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
NAME, DOTTED = re.compile(r"\w+([.:]\w+)*"), re.compile(r"\w+(\.\w+)+")
IMPORTING = set(
    "import_module __import__ spec_from_file_location SourceFileLoader run_module run_path resolve_name locate "
    "get_method get_class get_object instantiate".split()
)
"""Functions that import what their first argument names."""


class Parsed(NamedTuple):
    """One module's code."""

    digest: str
    imports: frozenset[str]
    """Dotted paths that it imports, including imports in functions."""
    exports: Mapping[str, str]
    """Imported name → its dotted path, at the top level or for type checkers."""
    computed: bool
    """Whether it imports a name that is computed."""


def code_hashes(config: Any, drivers: Iterable[str] = ()) -> dict[str, str]:
    """Returns module → hash, sorted by name.

    Args:
        config: resolved configuration of the stage; the search starts at all names in it.
        drivers: dotted paths of the functions that build and run the stage.
    """
    named = (value.replace(":", ".") for _, value, theirs in strings(config) if (NAME if theirs else DOTTED).fullmatch(value))
    used, left = set[str](), {module for path in (*named, *drivers) for module in defining(path)}
    while left:
        module = left.pop()
        used.add(module)
        left |= reached_from(module) - used
    return {module: parse_module(module).digest for module in sorted(used)}


def changed_modules(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """Returns the modules whose code differs or that are in only one of the two."""
    return sorted(module for module in now.keys() | then.keys() if now.get(module) != then.get(module))


def strings(node: Any, key: str = "", *, theirs: bool = False) -> Iterator[tuple[str, str, bool]]:
    """Yields (key, value, theirs) of every string; ``theirs``: the closest ``_target_`` is not of this project."""
    if isinstance(node, Mapping):
        theirs = not is_ours(str(node["_target_"])) if "_target_" in node else theirs
        for name, value in node.items():
            yield from strings(value, str(name), theirs=theirs)
    elif isinstance(node, list | tuple):
        for value in node:
            yield from strings(value, key, theirs=theirs)
    elif isinstance(node, str):
        yield key, node, theirs


def defining(path: str) -> set[str]:
    """Returns the modules that define a dotted path; empty for libraries, unknown names and code without effect."""
    parts = path.split(".")
    modules = [module for end in range(1, len(parts) + 1) if module_file(module := ".".join(parts[:end]))]
    if not modules or _decides_nothing(modules[-1]):
        return set()
    if not is_ours(path):
        return set(modules)
    module = modules[-1]
    names = parts[module.count(".") + 1 :]
    if exported := _find_exports(module, names[0] if names else "*"):
        return exported
    above, _, own = module.rpartition(".")
    return {module} if names else {module} | _find_exports(above, own)  # a function may be named like its module


def reached_from(module: str) -> set[str]:
    """Returns the modules that importing or calling a module's code may import."""
    parsed = parse_module(module)
    reached = {found for path in parsed.imports for found in defining(path)}
    return reached | {found for path in _folder_of(module) for found in defining(path)} if parsed.computed else reached


def _decides_nothing(module: str) -> bool:
    if module.partition(".")[0] == "experiments":
        return module not in DRIVERS
    return any(f"{module}.".startswith(f"{package}.") for package in WATCHING)


def _find_exports(package: str, name: str) -> set[str]:
    """Returns the modules that define a name re-exported by a package."""
    if not package or not _is_package(package) or (path := parse_module(package).exports.get(name)) is None:
        return set()
    return {path} if path == f"{package}.{name}" else defining(path)


def _folder_of(module: str) -> Iterator[str]:
    """Yields all modules in the folder of a module, and below it."""
    file = _file_of(module)
    package = [module] if file.name == "__init__.py" else module.split(".")[:-1]
    for folder, below, files in os.walk(file.parent):
        below[:] = [name for name in below if name.isidentifier()]  # neither .venv nor site-packages
        inner = Path(folder).relative_to(file.parent).parts
        names = (Path(name).stem for name in files if name.endswith(".py"))
        yield from (".".join([*package, *inner, name]).removesuffix(".__init__") for name in names if "." not in name)


def module_file(module: str) -> Path | None:
    """Returns the file of a module of this project or of the user; None for a library or a folder. Imports nothing."""
    first, *inner = module.split(".")
    file, folders = _root(first)
    for name in inner:
        places = [folder / name for folder in folders]
        files = (file for place in places for file in (place / "__init__.py", place.with_suffix(".py")))
        file = next((file for file in files if file.is_file()), None)
        if file is None:
            folders = [place for place in places if place.is_dir()]
        else:
            folders = [file.parent] if file.name == "__init__.py" else []
    return file


@cache
def _root(name: str) -> tuple[Path | None, list[Path]]:
    """Returns the file of a top-level module and the folders of its submodules; a folder without __init__.py has none."""
    try:
        spec = find_spec(name)  # imports nothing for a name without dots
    except (ImportError, ValueError):  # ``__main__``
        return None, []
    if spec is None:
        return None, []
    file = Path(spec.origin) if spec.origin is not None and spec.has_location else None
    folders = [Path(folder) for folder in spec.submodule_search_locations or ()]
    if is_ours(name):
        return file, folders
    own = [folder for folder in folders if not _is_library(folder)]
    return (None if file is None or _is_library(file.parent if folders else file) else file), own


def _is_library(place: Path) -> bool:
    """Returns whether a package or module was installed, also into a folder of its own (``pip install --target``)."""
    return any(place.is_relative_to(folder) for folder in INSTALLED) or any(place.parent.glob("*.dist-info"))


def _file_of(module: str) -> Path:
    file = module_file(module)
    assert file is not None, f"no module {module}"
    return file


def _is_package(module: str) -> bool:
    file = module_file(module)
    return file is not None and file.name == "__init__.py"


def parse_module(module: str) -> Parsed:
    """Returns the module's current code; cached until its file changes."""
    file = _file_of(module)
    return _parse(module, file, file.stat().st_mtime_ns)


@cache
def _parse(module: str, file: Path, changed: int) -> Parsed:
    content = file.read_bytes()
    tree = parse(content)
    if tree is None:  # the user's own module; building it will raise
        return Parsed(digest_of(content), frozenset(), {}, computed=False)
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    exports = dict[str, str]()
    for node in tree.body:
        if _for_type_checkers(node):
            exports |= {name: path for part in ast.walk(node) for name, path in _bindings(part, package)}
        exports |= dict(_bindings(node, package))
    imports, computed = _imports(tree, package)
    return Parsed(digest_of(content, tree), frozenset(imports), exports, computed)


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
        yield from ((name.asname or name.name, f"{origin}.{name.name}".lstrip(".")) for name in node.names)
    elif isinstance(node, ast.Import):
        yield from ((name.asname or name.name.partition(".")[0], name.name) for name in node.names)


def _imports(tree: ast.AST, package: str) -> tuple[set[str], bool]:
    """Returns the dotted paths that code imports at run time, and whether it also imports names that it computes.

    The paths include modules named in strings, for example for ``python -m``.
    """
    found, computed, left = set[str](), False, [tree]
    while left:
        node = left.pop()
        if _for_type_checkers(node):
            left += node.orelse  # pyright: ignore[reportAttributeAccessIssue]
            continue
        bound = dict(_bindings(node, package))
        found |= {*bound.values()}
        computed |= any(path.rpartition(".")[2] in IMPORTING and name not in IMPORTING for name, path in bound.items())
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            found |= {node.value} if module_file(node.value) is not None and not _is_package(node.value) else set()
        elif isinstance(node, ast.Call) and _last_name(node.func) in IMPORTING and _names_absolutely(node.args[:1]):
            found.add(node.args[0].value)  # pyright: ignore[reportAttributeAccessIssue]
            left += [*node.args[1:], *node.keywords]
            continue
        elif _last_name(node) in IMPORTING or (isinstance(node, ast.Name) and node.id in ("exec", "eval")):
            computed = True
        left += ast.iter_child_nodes(node)
    return found, computed


def _names_absolutely(arguments: list[ast.expr]) -> bool:
    """Whether the first argument is a constant dotted path."""
    first = arguments[0] if arguments else None
    return isinstance(first, ast.Constant) and isinstance(first.value, str) and NAME.fullmatch(first.value) is not None
