"""Reads the arguments of a ``_target_`` from its source. Importing it would import torch, which takes seconds."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from experiments.config.hints import did_you_mean

OURS = ("contrastive_reasoning", "lightning_modules", "datamodules", "callbacks", "experiments")
"""Packages of this project."""


def is_ours(path: str) -> bool:
    """Whether a dotted path belongs to this project."""
    return path.partition(".")[0] in OURS


@dataclass(frozen=True, kw_only=True)
class Argument:
    """One argument of a function or a constructor."""

    required: bool
    annotation: ast.expr | None


@dataclass(frozen=True, kw_only=True)
class Signature:
    """The keyword arguments of a callable."""

    arguments: Mapping[str, Argument]
    any_keyword: bool
    """Whether it takes ``**kwargs``."""


NO_ARGUMENTS = Signature(arguments={}, any_keyword=False)
NO_CONSTRUCTOR = {"object", "ABC", "Protocol", "Generic"}
"""Base classes of the standard library that add no arguments. Some are frozen and have no source file."""
Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


@cache
def signature_of(target: str) -> Signature | None:
    """Returns the signature of a function or class; None if its source does not show it (a C extension, an alias, a
    missing name)."""
    found = _locate(target)
    if found is None:
        return None
    module, definition = found
    return _of_class(module, definition) if isinstance(definition, ast.ClassDef) else _of_function(definition, skip=0)


def missing_name(target: str) -> str | None:
    """Returns why a dotted name cannot be imported; None if it can, or if the source does not show it."""
    top, *inner = parts = target.split(".")
    if not inner:
        return "it must name a module and what to build from it, such as my_rewards.brevity"
    if not _has_module(top):
        return f"there is no module {top!r}: write {top}.py here, or add its folder to PYTHONPATH"
    for end in range(len(parts) - 1, 0, -1):
        module, name = ".".join(parts[:end]), parts[end]
        source = _source(module)
        if source is None:
            continue
        names = _all_names(module)
        open_ended = names & ({"*"} if is_ours(top) else {"*", "__getattr__"})  # ours list what they import lazily
        if open_ended or name in names or _origin(f"{module}.{name}") is not None:
            return None
        to_build = sorted(node.name for node in _statements(source.body) if isinstance(node, Definition))
        return f"{module} has no {name}; {did_you_mean(name, to_build or sorted(names))}"
    return None


def _has_module(top: str) -> bool:
    try:
        return find_spec(top) is not None
    except (ImportError, ValueError):  # ``__main__``
        return True


@cache
def _all_names(module: str) -> frozenset[str]:
    """Returns every name that is bound anywhere in a module; these are more than those that can be imported."""
    source = _source(module)
    return frozenset(name for node in ast.walk(source) for name in _bound_names(node)) if source else frozenset()


def _bound_names(node: ast.AST) -> Iterator[str]:
    """Yields the names that a statement binds."""
    if isinstance(node, Definition):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from ((alias.asname or alias.name) for alias in node.names)
    elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
        yield node.id


def _locate(target: str) -> tuple[str, Definition] | None:
    """Returns the module that defines a dotted name, and its definition."""
    parts = target.split(".")
    for end in range(len(parts) - 1, 0, -1):
        module = ".".join(parts[:end])
        if (source := _source(module)) is not None:
            return _find_definition(module, source.body, parts[end:])
    return None


def _find_definition(module: str, body: Sequence[ast.stmt], names: Sequence[str]) -> tuple[str, Definition] | None:
    """Finds a name that a module defines or re-exports, or a method of a class."""
    name, *inner = names
    for statement in reversed([*_statements(body)]):  # the last definition wins
        if isinstance(statement, Definition) and statement.name == name:
            if not inner:
                return module, statement
            return _find_definition(module, statement.body, inner) if isinstance(statement, ast.ClassDef) else None
        if (dotted := _import_target(module, statement, name)) is not None:
            return _locate(".".join([dotted, *inner]))
    return None


def _statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Yields the statements of a block and of its ``if`` bodies, where packages import lazy names for type checkers."""
    for statement in body:
        yield from _statements([*statement.body, *statement.orelse]) if isinstance(statement, ast.If) else [statement]


def _import_target(module: str, statement: ast.stmt, name: str) -> str | None:
    """Returns the dotted name that an import statement binds to ``name``; None if it binds none."""
    if isinstance(statement, ast.Import):
        return next((alias.name for alias in statement.names if (alias.asname or alias.name) == name), None)
    if not isinstance(statement, ast.ImportFrom):
        return None
    package = module.split(".")
    if statement.level:
        origin = _origin(module)
        is_package = origin is not None and origin.name == "__init__.py"
        package = package[: len(package) - statement.level + is_package]
    parts = [*(package if statement.level else []), *([statement.module] if statement.module else [])]
    names = (alias.name for alias in statement.names if (alias.asname or alias.name) == name)
    return next((".".join([*parts, original]) for original in names), None)


def _of_function(function: ast.FunctionDef | ast.AsyncFunctionDef, *, skip: int) -> Signature:
    """Returns the signature of a function without its first ``skip`` positional arguments, which are already bound."""
    given = function.args
    positional = [*given.posonlyargs, *given.args]
    optional = {arg.arg for arg in positional[len(positional) - len(given.defaults) :]}
    optional |= {arg.arg for arg, default in zip(given.kwonlyargs, given.kw_defaults, strict=True) if default}
    arguments = {
        arg.arg: Argument(required=arg.arg not in optional, annotation=arg.annotation)
        for arg in (*positional[skip:], *given.kwonlyargs)
    }
    return Signature(arguments=arguments, any_keyword=given.kwarg is not None)


def _of_class(module: str, definition: ast.ClassDef) -> Signature | None:
    """Returns the signature of a class: of its ``__init__``, its dataclass fields or its first base with arguments."""
    for statement in definition.body:
        if isinstance(statement, ast.FunctionDef) and statement.name == "__init__":
            return _of_function(statement, skip=1)
        if isinstance(statement, ast.FunctionDef) and statement.name == "__new__":
            return None
    bases = [_of_base(module, base) for base in definition.bases]
    if any(base is None for base in bases):
        return None
    inherited = [base for base in bases if base is not None]
    if not any("dataclass" in ast.unparse(decorator) for decorator in definition.decorator_list):
        return next((base for base in inherited if base.arguments or base.any_keyword), NO_ARGUMENTS)
    arguments = {name: argument for base in reversed(inherited) for name, argument in base.arguments.items()}
    return Signature(arguments=arguments | _fields(definition), any_keyword=False)


def _of_base(module: str, base: ast.expr) -> Signature | None:
    source = _source(module)
    names = ast.unparse(base.value if isinstance(base, ast.Subscript) else base).split(".")
    found = _find_definition(module, source.body, names) if source is not None else None
    if found is None:
        return NO_ARGUMENTS if names[-1] in NO_CONSTRUCTOR else None
    where, definition = found
    return _of_class(where, definition) if isinstance(definition, ast.ClassDef) else None


def _fields(definition: ast.ClassDef) -> dict[str, Argument]:
    """Returns the fields of a dataclass that its constructor takes."""
    fields: dict[str, Argument] = {}
    for statement in definition.body:
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        value = ast.unparse(statement.value) if statement.value else ""
        made_by_field = re.match(r"(\w+\.)?field\(", value)
        has_default = "default" in value if made_by_field else bool(value)
        if "ClassVar" not in ast.unparse(statement.annotation) and "init=False" not in value:
            fields[statement.target.id] = Argument(required=not has_default, annotation=statement.annotation)
    return fields


@cache
def _source(module: str) -> ast.Module | None:
    origin = _origin(module)
    return ast.parse(origin.read_bytes()) if origin is not None else None


@cache
def _origin(module: str) -> Path | None:
    """Returns the file of a module without importing the packages above it; None if it has none."""
    top, *inner = module.split(".")
    try:
        spec = find_spec(top)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    origin, folders = Path(spec.origin or ""), [Path(place) for place in spec.submodule_search_locations or ()]
    for part in inner:
        places = [place for folder in folders for place in (folder / part / "__init__.py", folder / f"{part}.py")]
        origin = next((place for place in places if place.is_file()), Path())
        folders = [folder / part for folder in folders if (folder / part).is_dir()]
    return origin if origin.suffix == ".py" else None
