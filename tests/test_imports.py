"""Allowed imports between packages, read from the syntax tree so that lazy imports count too."""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
import torch
from jaxtyping import TypeCheckError

from contrastive_reasoning.losses import info_nce

ROOT = Path(__file__).resolve().parent.parent
PURE = "contrastive_reasoning"
OURS = (PURE, "lightning_modules", "datamodules", "callbacks", "experiments", "benchmarks", "conf")
MATHEMATICS = ("losses", "advantages", "objectives", "geometry")

# package -> (our packages it may import besides itself, other libraries it must never import)
MAY_IMPORT: dict[str, tuple[set[str], set[str]]] = {
    f"{PURE}.tasks": (set(), {"torch", "lightning", "hydra", "mlflow", "numpy", "transformers"}),
    f"{PURE}.workers": ({f"{PURE}.tasks"}, {"torch", "lightning", "hydra", "mlflow", "numpy", "transformers"}),
    **{
        f"{PURE}.{package}": (
            {f"{PURE}.losses"} if package == "geometry" else set(),
            {"transformers", "lightning", "hydra", "mlflow"},
        )
        for package in MATHEMATICS
    },
    f"{PURE}.distributed": (set(), {"transformers", "lightning", "hydra", "mlflow"}),
    f"{PURE}.nonfinite": ({f"{PURE}.distributed"}, {"transformers", "lightning", "hydra", "mlflow"}),
    f"{PURE}.errors": (set(), {"torch", "transformers", "lightning", "hydra", "mlflow"}),
    f"{PURE}.lazy": (set(), {"torch", "transformers", "lightning", "hydra", "mlflow"}),
    f"{PURE}.published": (set(), {"torch", "transformers", "lightning", "hydra", "mlflow"}),
    f"{PURE}.ranges": (set(), {"torch", "transformers", "lightning", "hydra", "mlflow"}),
    f"{PURE}.progress": (set(), {"torch", "transformers", "lightning", "hydra", "mlflow"}),
    f"{PURE}.stack_dump": (set(), {"torch", "transformers", "lightning", "hydra", "mlflow"}),
    f"{PURE}.policies": ({f"{PURE}.losses"}, {"lightning", "hydra", "mlflow"}),
    f"{PURE}.critics": ({f"{PURE}.losses", f"{PURE}.policies", f"{PURE}.tasks"}, {"lightning", "hydra", "mlflow"}),
    f"{PURE}.rollout": ({f"{PURE}.policies", f"{PURE}.tasks", f"{PURE}.distributed"}, {"lightning", "hydra", "mlflow"}),
    f"{PURE}.rewards": (
        {
            f"{PURE}.{package}"
            for package in (
                *(
                    "rollout",
                    "tasks",
                    "workers",
                    "critics",
                    "losses",
                    "policies",
                    "geometry",
                    "distributed",
                    "nonfinite",
                ),
            )
        },
        {"lightning", "hydra", "mlflow"},
    ),
    f"{PURE}.evaluation": (
        {f"{PURE}.rollout", f"{PURE}.tasks", f"{PURE}.policies", f"{PURE}.distributed", f"{PURE}.published"},
        {"lightning", "hydra", "mlflow"},
    ),
    "lightning_modules": ({PURE}, {"hydra", "mlflow"}),
    "datamodules": ({PURE}, {"hydra", "mlflow"}),
    "callbacks": ({PURE}, {"hydra", "mlflow"}),
    "experiments": ({PURE, "conf"}, {"transformers", "peft"}),
    "benchmarks": ({PURE, "experiments", "lightning_modules", "callbacks", "datamodules"}, set()),
    "conf": (set(), {"torch", "lightning", "hydra", "mlflow"}),
}
ADVANTAGES_TAKE = {f"{PURE}.advantages": {f"{PURE}.rewards", f"{PURE}.distributed"}}
"""Exceptions to the table of packages: an advantage is called with a Credit."""
ONLY_IN = {
    "mlflow": {"experiments/mlflow_sync/store.py", "experiments/mlflow_sync/tracker.py"},
    "math_verify": {"contrastive_reasoning/tasks/answer/symbolic.py"},
    "datasets": {"datamodules/problem_rows.py"},
}


LAYERS: tuple[set[str], ...] = (
    {"system"},
    {"schema", "assemble", "config", "table"},
    {"run_folder"},
    {"stages", "mlflow_sync"},
    {"jobs"},
    {"analysis"},
    {
        "cli",
        "plan",
        "sample",
        "report",
        "study",
        "sweep",
        "compare",
        "dashboard",
        "model",
        "new",
        "publish",
        "track",
        "run",
    },
)
"""Modules and folders of ``experiments``, lowest layer first. None imports one of a higher layer; imports
inside a layer have no cycle."""


def package_of(module: str) -> str:
    parts = module.split(".")
    return ".".join(parts[:2]) if parts[0] == PURE else parts[0]


@cache
def imported(path: Path) -> frozenset[str]:
    """Returns every module in an import statement anywhere in the file, with ``from . import`` resolved."""
    return frozenset(named_by_imports(path))


def named_by_imports(path: Path) -> Iterator[str]:
    package = path.relative_to(ROOT).with_suffix("").parts[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) if node.level else ""
            module = ".".join(part for part in (base, node.module or "") if part)
            yield module
            if module == "experiments":
                yield from (f"{module}.{name.name}" for name in node.names)


def unit_of(module: str) -> str | None:
    """Returns the module or folder of ``experiments`` that holds a module; None outside and for the package."""
    parts = module.split(".")
    return parts[1] if parts[0] == "experiments" and len(parts) > 1 else None


def imports_between_units() -> dict[str, set[str]]:
    """Returns module or folder of ``experiments`` → the others that it imports, anywhere in its code."""
    found: dict[str, set[str]] = {}
    for path in (ROOT / "experiments").rglob("*.py"):
        unit = path.relative_to(ROOT / "experiments").with_suffix("").parts[0]
        if unit != "__init__":
            others = {other for module in imported(path) if (other := unit_of(module)) is not None}
            found.setdefault(unit, set()).update(others - {unit})
    return found


def reachable(imports: dict[str, set[str]], start: str) -> set[str]:
    seen, left = set[str](), [start]
    while left:
        left += (new := imports.get(left.pop(), set()) - seen)
        seen |= new
    return seen


def product_files() -> list[Path]:
    return sorted(path for package in OURS for path in (ROOT / package).rglob("*.py"))


def package_of_file(path: Path) -> str:
    return package_of(".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"))


def may_import(package: str, module: str) -> bool:
    if package == PURE:  # the package itself imports nothing
        return module == "__future__"
    allowed, never = MAY_IMPORT[package]
    allowed = allowed | ADVANTAGES_TAKE.get(package, set()) | {f"{PURE}.errors", f"{PURE}.lazy", f"{PURE}.ranges"}
    other = package_of(module)
    if other.split(".")[0] in OURS:
        return other == package or other in allowed or other.split(".")[0] in allowed
    return other not in never


def test_files_import_only_allowed_modules() -> None:
    wrong = {
        (str(path.relative_to(ROOT)), module)
        for path in product_files()
        for module in imported(path)
        if not may_import(package_of_file(path), module)
    }
    assert not wrong


def test_layers_of_experiments_do_not_import_higher_layers() -> None:
    level = {unit: number for number, units in enumerate(LAYERS) for unit in units}
    imports = imports_between_units()
    assert set(imports) <= set(level), "each has its layer"
    wrong = {(unit, other) for unit, others in imports.items() for other in others if level[other] > level[unit]}
    assert not wrong


def test_experiments_has_no_import_cycle() -> None:
    imports = imports_between_units()
    assert not {unit for unit in imports if unit in reachable(imports, unit)}


def test_may_import_lists_every_package() -> None:
    packages = {package_of_file(path) for path in product_files()} - {PURE}
    assert packages == set(MAY_IMPORT)


def test_packages_export_what_they_import() -> None:
    """With ``py.typed``, type checkers take an imported name as private, unless it is imported as itself."""
    packages = [path for path in product_files() if path.name == "__init__.py" and path.is_relative_to(ROOT / PURE)]
    private = {
        (str(path.relative_to(ROOT)), name.name)
        for path in packages
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith(f"{PURE}.")
        for name in node.names
        if name.asname != name.name and node.module != f"{PURE}.lazy"
    }
    assert not private


@pytest.mark.parametrize(("library", "files"), ONLY_IN.items())
def test_library_is_imported_only_in_listed_files(library: str, files: set[str]) -> None:
    importers = {
        str(path.relative_to(ROOT))
        for path in product_files()
        if any(package_of(module) == library for module in imported(path))
    }
    assert importers == files


def test_shapes_that_would_broadcast_raise() -> None:
    with pytest.raises(TypeCheckError):
        info_nce(torch.zeros(2, 3), torch.ones(2, 1, dtype=torch.bool))


def test_hydra_utils_is_imported_only_in_assemble() -> None:
    callers = [path.name for path in product_files() if "hydra.utils" in imported(path)]
    assert callers == ["assemble.py"]


def test_modules_and_tests_of_mutmut_exist() -> None:
    """It ignores a path that is not there."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["mutmut"]
    keys = ("source_paths", "also_copy", "pytest_add_cli_args_test_selection")
    assert not [path for key in keys for path in settings[key] if not (ROOT / path).exists()]
