"""uv.lock installs what constraints.txt installs, from the public index alone."""

from __future__ import annotations

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
INDEX = {"https://pypi.org", "https://files.pythonhosted.org"}


@cache
def lock() -> dict[str, Any]:
    return tomllib.loads((ROOT / "uv.lock").read_text(encoding="utf-8"))


def locked_versions() -> dict[str, set[str]]:
    versions: dict[str, set[str]] = {}
    for package in lock()["package"]:
        versions.setdefault(package["name"], set()).add(package.get("version", ""))
    return versions


def test_every_constraint_is_the_locked_version() -> None:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pinned = [Requirement(line) for line in lines if line.strip() and not line.startswith("#")]
    locked = locked_versions()
    assert len(pinned) > 200
    for requirement in pinned:
        (exact,) = requirement.specifier
        assert locked[canonicalize_name(requirement.name)] == {exact.version}, requirement.name


def test_lock_names_the_public_index_and_no_other_host() -> None:
    text = (ROOT / "uv.lock").read_text(encoding="utf-8")
    assert {*re.findall(r"https?://[^/\"\s]+", text)} == INDEX


def test_lock_is_that_of_the_project_file() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (own,) = [package for package in lock()["package"] if package["name"] == "contrastive-reasoning"]
    extras = project["optional-dependencies"]
    assert lock()["requires-python"] == project["requires-python"]
    assert {*own["metadata"]["provides-extras"]} == {*extras}
    written = {(name, line) for name, lines in extras.items() for line in lines}
    written |= {("", line) for line in project["dependencies"]}
    locked = {
        (re.search(r"extra == '(.+?)'", one.get("marker", "")), f"{one['name']}{one.get('specifier', '')}")
        for one in own["metadata"]["requires-dist"]
    }
    assert {(extra[1] if extra else "", plain(line)) for extra, line in locked} == {
        (extra, plain(line)) for extra, line in written
    }


def plain(line: str) -> tuple[str, str]:
    """Returns name and versions of a requirement."""
    requirement = Requirement(line)
    return canonicalize_name(requirement.name), str(requirement.specifier)
