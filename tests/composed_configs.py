"""Compares the configurations that two trees compose:  python -m tests.composed_configs --base COMMIT

Composed and resolved in this tree and in a checkout of COMMIT:

    every experiment at every scale
    every family with every task at every scale
    every arm and start of a study
    every value of a sweep
    the default configuration with every option of every group

Each difference is printed with the command lines that have it. The exit code is 0 if there is no difference.

    --rename 'OLD->NEW'    override of COMMIT, and its replacement in this tree (may be repeated)
    --only REGEX           compares only command lines that match

The configurations of COMMIT are cached in the folder for temporary files, so the next call composes this tree alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import product
from pathlib import Path
from typing import Any

import yaml
from hydra import compose, initialize_config_module
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parent.parent
NO_PARTS = {"experiment", "study", "sweep", "scale", "hydra"}
"""Groups that are composed in another way, or that are not ours."""
SHOWN = 3
"""Maximum number of command lines printed for a difference."""
Commands = Mapping[str, Sequence[str]]
"""Label → overrides. In the other tree, a study or sweep may have other overrides under the same label."""


def commands() -> dict[str, list[str]]:
    """Returns label → overrides of everything to compose in the imported tree. Hydra must be initialised."""
    import conf

    options, folder = GlobalHydra.instance().config_loader().get_group_options, Path(conf.__path__[0])
    scales = options("scale")
    lines = [[f"experiment={name}", f"scale={scale}"] for name, scale in product(options("experiment"), scales)]
    axes = product(options("family"), options("task"), scales)
    lines += [["name=axes", f"family={family}", f"task={task}", f"scale={scale}"] for family, task, scale in axes]
    groups = sorted({*options("", ObjectType.GROUP)} - NO_PARTS)
    lines += [["name=part", f"{group}={option}"] for group in groups for option in options(group)]
    found = {" ".join(line): line for line in lines}
    for name in options("study"):
        own = yaml.safe_load((folder / "study" / f"{name}.yaml").read_text(encoding="utf-8"))
        base: dict[str, Any] = {"arms": {}}
        if "extends" in own:
            base = yaml.safe_load((folder / "study" / f"{own['extends']}.yaml").read_text(encoding="utf-8"))
        study = {**base, **own}
        arms = {arm: {**base["arms"].get(arm, {}), **node}["overrides"] for arm, node in study["arms"].items()}
        start = {"start": study["start"]["overrides"]} if study["start"] else {}
        found |= {
            f"study {name} {arm}": [*study["common"], *further, "name=s"] for arm, further in (arms | start).items()
        }
    for name in options("sweep"):
        preset = yaml.safe_load((folder / "sweep" / f"{name}.yaml").read_text(encoding="utf-8"))
        varied = {key: str(values).split(",") for key, values in preset["hydra"]["sweeper"]["params"].items()}
        for number, values in enumerate(product(*varied.values())):
            chosen = [f"{key}={value}" for key, value in zip(varied, values, strict=True)]
            found[f"sweep {name} {number}"] = ["experiment=clipo_laptop", *chosen]
    return found


def compose_all(lines: Commands) -> dict[str, Any]:
    """Returns label → resolved configuration of the imported tree, or the error as text."""
    configs: dict[str, Any] = {}
    for label, line in lines.items():
        try:
            configs[label] = OmegaConf.to_container(compose("config", list(line)), resolve=True)
        except Exception as error:  # whatever the other tree raises is compared as text
            configs[label] = f"refused: {str(error).splitlines()[0]}"
    return configs


@contextmanager
def initialised() -> Iterator[None]:
    """Initialises Hydra for the configuration of the imported tree."""
    from experiments.schema import register

    register()
    with initialize_config_module("conf", version_base="1.3"):
        yield


def composed_in(tree: Path, lines: Commands | None = None) -> tuple[Commands, dict[str, Any]]:
    """Returns command lines and their configurations, from a process that imports ``tree``.

    Args:
        tree: a checkout.
        lines: label → overrides; None: ``commands()`` of that tree.
    """
    environment = dict(os.environ, PYTHONPATH=str(tree), PYTHONDONTWRITEBYTECODE="1")
    command = [sys.executable, str(Path(__file__).resolve()), "--compose"]
    done = subprocess.run(
        command, cwd=tree, env=environment, input=json.dumps(lines), stdout=subprocess.PIPE, text=True, check=True
    )
    found, configs = json.loads(done.stdout)
    return found, configs


def composed_at(commit: str) -> tuple[Commands, dict[str, Any]]:
    """Returns the command lines of a commit and their configurations."""
    sha = subprocess.check_output(["git", "rev-parse", f"{commit}^{{commit}}"], cwd=ROOT, text=True).strip()
    mark = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:12]
    kept = Path(tempfile.gettempdir()) / f"composed_configs-{sha}-{mark}.json"
    if not kept.is_file():
        with tempfile.TemporaryDirectory() as folder:
            tree = Path(folder) / "tree"
            subprocess.run(["git", "clone", "-q", "--shared", "--no-checkout", str(ROOT), str(tree)], check=True)
            subprocess.run(["git", "checkout", "-q", sha], cwd=tree, check=True)
            written = json.dumps(composed_in(tree))
        part = kept.with_suffix(f".{os.getpid()}")
        part.write_text(written, encoding="utf-8")
        part.replace(kept)
    lines, configs = json.loads(kept.read_text(encoding="utf-8"))
    return lines, configs


def flat(config: Any, above: str = "") -> Iterator[tuple[str, Any]]:
    """Yields each leaf and each empty container with its dotted path."""
    entries = config.items() if isinstance(config, dict) else enumerate(config) if isinstance(config, list) else ()
    children = [(f"{above}.{key}" if above else str(key), value) for key, value in entries]
    if not children:
        yield above, config
    for path, value in children:
        yield from flat(value, path)


def differences(base: Any, here: Any) -> list[str]:
    """Returns the leaves that differ, as ``path: base -> here`` with ``-`` for a missing path, or the error alone."""
    if isinstance(here, str) and not isinstance(base, str):
        return [here]
    leaves = [{path: json.dumps(value) for path, value in flat(config)} for config in (base, here)]
    old, new = leaves
    paths = sorted(path for path in old.keys() | new.keys() if old.get(path) != new.get(path))
    return [f"{path}: {old.get(path, '-')} -> {new.get(path, '-')}" for path in paths]


def renamed(line: Sequence[str], renames: Mapping[str, str]) -> list[str]:
    """Returns the overrides, with renamed ones replaced by their new names."""
    return [word for old in line for word in renames.get(old, old).split()]


def report(found: Mapping[str, Sequence[str]]) -> str:
    """Formats label → differences as one block for each set of command lines with the same differences."""
    alike: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for label, lines in found.items():
        alike[tuple(lines)].append(label)
    blocks = []
    for lines, labels in alike.items():
        more = f" and {len(labels) - SHOWN} more" if len(labels) > SHOWN else ""
        blocks.append("\n".join([f"{'; '.join(labels[:SHOWN])}{more}", *(f"    {line}" for line in lines)]))
    return "\n".join(blocks)


def main(arguments: Sequence[str]) -> int:
    """Compares. With ``--compose``, for internal use by a subprocess, composes the lines from standard input."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", metavar="COMMIT", default="HEAD")
    parser.add_argument("--rename", action="append", default=[], metavar="OLD->NEW")
    parser.add_argument("--compose", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--only", default="", metavar="REGEX")
    args = parser.parse_args(arguments)
    if args.compose:
        with initialised():
            given = json.load(sys.stdin) or commands()
            print(json.dumps([given, compose_all(given)]))
        return 0

    renames = dict(rename.split("->", 1) for rename in args.rename)
    lines, base = composed_at(args.base)
    lines = {label: line for label, line in lines.items() if re.search(args.only, label)}
    with initialised():
        written = commands()
    mine = {label: written.get(label, renamed(line, renames)) for label, line in lines.items()}
    _, here = composed_in(ROOT, mine)
    found = {label: differences(base[label], here[label]) for label in lines}
    found = {label: lines for label, lines in found.items() if lines}
    if found:
        print(report(found))
    print(f"{len(lines)} configurations, {len(found)} differ")
    return int(bool(found))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
