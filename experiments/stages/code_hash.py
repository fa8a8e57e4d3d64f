"""Hashes of the code that affects a stage's result: module → hash of its syntax tree without docstrings and comments.

    names in the configuration, driver ──► modules that define them ──► modules that these import ──► …

``contrastive_reasoning.losses.InfoNCE`` leads to the module that defines it, not to the package that re-exports it. If
a name cannot be resolved (star imports, attributes of an imported package), the whole package counts; if a module
computes what it imports, its whole folder. Libraries are not hashed. The user's own code outside this project is hashed
like ours, also in folders without ``__init__.py``, and so is each ``__init__.py`` that runs before it.
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

from contrastive_reasoning.workers.planned_code import PlannedSource, source_hash, tree_hash
from experiments.config.folders import is_ours

DRIVERS = ("experiments.stages.train", "experiments.stages.evaluate", "experiments.assemble")
"""The modules of ``experiments`` that affect results; the others plan, check, record or display."""
WATCHING = (
    "callbacks.phases",
    "contrastive_reasoning.progress",
    "contrastive_reasoning.published",
    "contrastive_reasoning.stack_dump",
)
"""Modules and packages that only display something."""
WITH_ENVIRONMENTS = "contrastive_reasoning.tasks.verifiers."
"""Beginning of the targets whose ``environment`` names a package of the user that the library verifiers imports."""
INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
DOTTED = re.compile(r"\w+(\.\w+)+")
WORD = re.compile(r"\w+([.:]\w+)*")
BY_NAME = ("import_module", "__import__", "run_module", "get_method", "get_class", "get_object", "locate")
"""Functions that import what their first argument names."""
LOADERS = {*BY_NAME, "spec_from_file_location", "SourceFileLoader", "run_path", "iter_modules", "walk_packages"}
"""Those, and functions that import or list files."""
IMPORTS = (ast.Import, ast.ImportFrom)
BUILDERS = {"instantiate", "resolve_name"}
"""Functions that import by a name within their argument. In this project the configuration has all of these names."""


class Parsed(NamedTuple):
    """One module's code."""

    digest: str
    imports: frozenset[str]
    """Dotted paths that it imports, including imports in functions; ``package.*`` is the whole package."""
    computes_imports: bool
    """Whether it imports modules whose names are not in its text."""
    names: Mapping[str, str]
    """Name at the top level, or for type checkers, → dotted path of what it imports or defines."""


def code_hashes(config: Any, drivers: Iterable[str] = ()) -> dict[str, str]:
    """Returns module → hash, sorted by name.

    Args:
        config: resolved configuration of the stage; the search starts at the names of code in it.
        drivers: dotted paths of the functions that build and run the stage.
    """
    used, above = set[str](), set[str]()
    modules_of = cache(defining)  # most modules import the same ones; only for this call, as files may change
    named = (*named_code(config), *environments(config), *drivers)
    left = {module for path in named for module in modules_of(path)}
    while left:
        module = left.pop()
        used.add(module)
        left |= {found for path in parse_module(module).imports for found in modules_of(path)} - used
        if parse_module(module).computes_imports:
            left |= _modules_beside(module) - used
        if not is_ours(module):
            above |= (packages := _packages_above(module))
            left |= {found for package in packages for found in _run_by(package)} - used
    return {module: parse_module(module).digest for module in sorted(used | above)}


def changed_modules(now: Mapping[str, str], then: Mapping[str, str]) -> list[str]:
    """Returns the modules whose code differs or that are in only one of the two."""
    return sorted(module for module in now.keys() | then.keys() if now.get(module) != then.get(module))


def planned_sources(code: Mapping[str, str]) -> dict[str, PlannedSource]:
    """Returns the user's modules of :func:`code_hashes`, with their files, for processes that import them later."""
    files = {module: module_file(module) for module in code if not is_ours(module)}
    return {module: PlannedSource(str(file.absolute()), code[module]) for module, file in files.items() if file}


def named_code(node: Any, *, foreign: bool = False) -> Iterator[str]:
    """Yields every string in a resolved configuration that may name code, as a dotted path.

    These are all targets and dotted strings, for example the ``path`` of ``hydra.utils.get_method``. In a ``foreign``
    node, whose target is not ours, a single word may be a module, too.
    """
    if isinstance(node, Mapping):
        foreign = not is_ours(str(node["_target_"])) if "_target_" in node else foreign
        node = list(node.values())
    if isinstance(node, list | tuple):
        for value in node:
            yield from named_code(value, foreign=foreign)
    elif isinstance(node, str) and (WORD if foreign else DOTTED).fullmatch(node):
        yield node.replace(":", ".")


def environments(node: Any) -> Iterator[str]:
    """Yields the module of every environment of the library verifiers in a resolved configuration."""
    if isinstance(node, Mapping):
        name = node.get("environment")
        if isinstance(name, str) and str(node.get("_target_", "")).startswith(WITH_ENVIRONMENTS):
            from contrastive_reasoning.tasks.verifiers.environment import module_of  # few runs have any

            yield module_of(name)
    for value in node.values() if isinstance(node, Mapping) else node if isinstance(node, list | tuple) else ():
        yield from environments(value)


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
        return {module} if names else {module} | _find_name(above, own)  # a function may be named like its module
    return _find_name(module, names[0] if names else "*") or _modules_beside(module)


def _decides_nothing(module: str) -> bool:
    if module.partition(".")[0] == "experiments":
        return module not in DRIVERS
    return any(f"{module}.".startswith(f"{package}.") for package in WATCHING)


def _find_name(package: str, name: str) -> set[str]:
    """Returns the modules that define a name of a package, whose ``__init__.py`` defines or imports it."""
    if not package or not _is_package(package) or (path := parse_module(package).names.get(name)) is None:
        return set()
    if path != f"{package}.{name}":
        return defining(path)
    return {path} if module_file(path) else {package}


def _modules_beside(module: str) -> set[str]:
    """Returns all modules in and under the folder of a module, which for a package is its own folder."""
    folder, package = _file_of(module).parent, _package_of(module)  # no package: a folder of the search path
    found = set[str]()
    for place, folders, files in os.walk(folder):
        folders[:] = [
            name for name in folders if not (name.startswith(".") or Path(place, name, "pyvenv.cfg").exists())
        ]
        parts = [*filter(None, [package]), *Path(place).relative_to(folder).parts]
        found |= {".".join([*parts, name[:-3]]).removesuffix(".__init__") for name in files if name.endswith(".py")}
    return {module for module in found if module_file(module) is not None and not _decides_nothing(module)}


def _package_of(module: str) -> str:
    return module if _is_package(module) else module.rpartition(".")[0]


def _packages_above(module: str) -> set[str]:
    """Returns the packages whose ``__init__.py`` runs before the module does."""
    parts = module.split(".")
    return {above for length in range(1, len(parts)) if _is_package(above := ".".join(parts[:length]))}


def _run_by(package: str) -> set[str]:
    """Returns what ``__init__.py`` imports as modules; from others it takes names, which change nothing elsewhere."""
    modules = (path for path in parse_module(package).imports if module_file(path) is not None)
    return {found for path in modules for found in defining(path)}


def module_file(module: str) -> Path | None:
    """Returns the file of a module of this project or of the user; None for a library. Imports nothing."""
    first, *inner = module.split(".")
    file, folders = _root(first)
    if not inner:
        return file
    places = [folder.joinpath(*inner) for folder in folders]
    candidates = (file for place in places for file in (place / "__init__.py", place.with_suffix(".py")))
    return next((file for file in candidates if file.is_file()), None)


def is_installed(name: str) -> bool:
    """Returns whether the first part of a dotted path is an installed package or module. Imports nothing."""
    try:
        return find_spec(name) is not None and _root(name) == TopLevel()
    except (ImportError, ValueError):  # ``__main__``
        return False


class TopLevel(NamedTuple):
    """Where the first part of a dotted path is; empty for a library or an unknown name."""

    file: Path | None = None
    folders: tuple[Path, ...] = ()
    """Where its modules are: several, and no file, without ``__init__.py``."""


@cache
def _root(name: str) -> TopLevel:
    try:
        spec = find_spec(name)  # imports nothing for a name without dots
    except (ImportError, ValueError):  # ``__main__``
        spec = None
    if spec is None:
        return TopLevel()
    if spec.origin is None:
        folders = tuple(map(Path, spec.submodule_search_locations or ()))
        return TopLevel(folders=tuple(folder for folder in folders if not _is_library(folder)))
    file = Path(spec.origin)
    if not spec.has_location or not (is_ours(name) or not _is_library(file)):
        return TopLevel()
    return TopLevel(file, (file.parent,) if file.name == "__init__.py" else ())


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
        return Parsed(source_hash(content), frozenset(), False, {})
    package = _package_of(module)
    names = dict[str, str]()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names[node.name] = f"{module}.{node.name}"
        else:
            stored = (part for part in ast.walk(node) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store))
            names |= {part.id: f"{module}.{part.id}" for part in stored}
        for part in ast.walk(node) if _for_type_checkers(node) else [node]:
            names |= dict(_bindings(part, package))
    imports, computes = _imports(tree, package, ours=is_ours(module))
    return Parsed(tree_hash(tree), frozenset(imports), computes, names)


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


def _imports(tree: ast.AST, package: str, *, ours: bool) -> tuple[set[str], bool]:
    """Returns the dotted paths that a module imports at run time, and whether it imports others, which it computes.

    The paths include modules named in strings, for example for ``python -m``; the strings of our modules name only our
    modules. Imports are computed if a loader or builder is used, or imported under another name, without a module name
    in the text.
    """
    found, computes, left = set[str](), False, [tree]  # not ast.walk, which would enter what only type checkers read
    loaders = LOADERS if ours else LOADERS | BUILDERS
    while left:
        node = left.pop()
        if _for_type_checkers(node):
            left += node.orelse  # pyright: ignore[reportAttributeAccessIssue]
            continue
        if (loaded := _loaded(node)) is not None:
            found.add(loaded)
            left += [part for part in ast.iter_child_nodes(node) if part is not node.func]  # pyright: ignore[reportAttributeAccessIssue]
            continue
        if isinstance(node, IMPORTS):
            found |= {path for _, path in _bindings(node, package)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and DOTTED.fullmatch(node.value):
            named = [node.value] if ours else [node.value, node.value.rpartition(".")[0]]
            found |= {
                name
                for name in named
                if (is_ours(name) or not ours) and module_file(name) is not None and not _is_package(name)
            }
        renamed = isinstance(node, ast.alias) and node.asname and node.name.rpartition(".")[2] in loaders
        executes = isinstance(node, ast.Name) and node.id in ("exec", "eval")
        computes = computes or bool(renamed) or executes or _last_name(node) in loaders
        left += [part for part in ast.iter_child_nodes(node) if part._fields]  # without contexts and operators
    return found, computes


def _loaded(node: ast.AST) -> str | None:
    """Returns the name in ``import_module("name")`` and its like; None for any other node, and for relative names."""
    if not (isinstance(node, ast.Call) and _last_name(node.func) in BY_NAME and node.args):
        return None
    name = node.args[0].value if isinstance(node.args[0], ast.Constant) else None
    return name if isinstance(name, str) and WORD.fullmatch(name) else None
