"""Apply each mutation in turn and run the tests that must catch it:  python -m tests.mutations [package …]

The mutated file lies in a copy of the working tree, so nothing of the tree is changed. Exit code 0: every mutation was
caught. 1: some were not, or their tests fail without any. 2: an entry does not fit the code any more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import yaml

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
COPIED = (
    "contrastive_reasoning",
    "lightning_modules",
    "datamodules",
    "callbacks",
    "experiments",
    "benchmarks",
    "conf",
    "docs",
    "tests",
)
FAILED_TESTS = 1
"""pytest's exit code where tests ran and some failed."""


@dataclass(frozen=True, kw_only=True)
class Mutation:
    """One fault."""

    file: str
    find: str
    """Stands exactly once in the file."""
    replace: str
    tests: list[str]
    why: str


def mutations(package: str) -> list[Mutation]:
    """What ``tests/mutations/<package>.yaml`` lists."""
    return [Mutation(**entry) for entry in yaml.safe_load((HERE / f"{package}.yaml").read_text(encoding="utf-8"))]


def ended(tests: list[str], tree: Path) -> int:
    """pytest's exit code for these tests in ``tree``; its output is shown where they could not run."""
    environment = dict(os.environ, PYTHONPATH=str(tree), PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, "-m", "pytest", "-c", "pyproject.toml", "-q", "-x", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-m", "not slow", *tests], cwd=tree, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode not in (0, FAILED_TESTS):
        print(done.stdout[-2000:], done.stderr[-2000:])
    return done.returncode


def caught(mutation: Mutation, tree: Path) -> bool:
    """Whether a named test fails with the fault in ``tree``, a copy of the working tree, which is restored."""
    path = tree / mutation.file
    text = path.read_text(encoding="utf-8")
    if text.count(mutation.find) != 1:
        sys.exit(f"{mutation.file}: {mutation.find!r} stands there {text.count(mutation.find)} times, not once")
    path.write_text(text.replace(mutation.find, mutation.replace), encoding="utf-8")
    try:
        return ended(mutation.tests, tree) == FAILED_TESTS
    finally:
        path.write_text(text, encoding="utf-8")


def main(arguments: list[str]) -> int:
    packages = arguments or sorted(path.stem for path in HERE.glob("*.yaml"))
    missed = tried = 0
    sound: dict[tuple[str, ...], bool] = {}  # whether these tests pass without a fault: red ones would catch any
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder) / "tree"
        for name in COPIED:
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        for name in ("pyproject.toml", "Makefile", "constraints.txt", "README.md"):
            shutil.copy(ROOT / name, tree / name)
        for package in packages:
            for mutation in mutations(package):
                tried += 1
                tests = tuple(mutation.tests)
                if tests not in sound:
                    sound[tests] = ended(mutation.tests, tree) == 0
                good = sound[tests] and caught(mutation, tree)
                missed += not good
                found = "caught" if good else "MISSED" if sound[tests] else "ITS TESTS FAIL WITHOUT IT"
                print(f"{found}  {package}: {mutation.why} ({mutation.file})", flush=True)
    print(f"{tried - missed} of {tried} caught")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
