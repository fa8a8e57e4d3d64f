"""Finds the YAML files to choose from: those of ``conf/`` and of the user's folder, ``--config-dir FOLDER``.

The folder is stored in an environment variable, which conf/config.yaml reads. So every composition finds it, in this
process and in those that a run starts (ranks, jobs of a sweep). If the user sets the variable, it applies to every
command. Standard library only.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from conf.experiments import VARIANTS

VARIABLE = "CONTRASTIVE_REASONING_CONF"
OPTIONS = ("--config-dir", "-cd")
ROOT = Path(__file__).resolve().parents[2]
CONF = ROOT / "conf"
OURS = ("contrastive_reasoning", "lightning_modules", "datamodules", "callbacks", "experiments")
"""Packages of this project."""
EMBEDDED = "embedded:"
"""Prefix of ``policy.pretrained`` for a policy that is part of the package."""
EMBEDDED_FOLDER = ROOT / "contrastive_reasoning" / "policies" / "embedded"


class ConfigDirError(ValueError):
    """Raised if the user's own folder cannot be used; the message is one sentence."""


def take_config_dir(arguments: Sequence[str]) -> list[str]:
    """Removes ``--config-dir FOLDER`` from the arguments and stores it for this process and those that it starts.

    Raises:
        ConfigDirError: if the folder does not exist, or a file of conf/ would hide one of its files.
    """
    left: list[str] = []
    prefix, folder = VARIABLE + "=", os.environ.get(VARIABLE)
    rest = iter(arguments)
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option in OPTIONS:
            prefix, folder = f"{option} ", value if equals else next(rest, "")
        else:
            left.append(argument)
    if folder is not None:
        folder = os.path.expanduser(folder)
        if not folder or not Path(folder).is_dir():
            raise ConfigDirError(f"{prefix}{folder}: no such folder")
        names = [path.relative_to(folder) for path in sorted(Path(folder).rglob("*.yaml"))]
        if hidden := next((name for name in names if (CONF / name).is_file()), None):
            raise ConfigDirError(
                f"{prefix}{folder}: {hidden} is a file of conf/ too, which comes first; give yours another name"
            )
        if taken := next((name for name in names if str(name.parent) == "experiment" and name.stem in VARIANTS), None):
            raise ConfigDirError(f"{prefix}{folder}: {taken} has the name of an experiment; give yours another name")
        os.environ[VARIABLE] = str(Path(folder).resolve())
    return left


def is_ours(path: str) -> bool:
    """Whether a dotted path belongs to this project."""
    return path.partition(".")[0] in OURS


def own_folder() -> Path | None:
    """Returns the user's own folder; None if none is set."""
    return Path(os.environ[VARIABLE]) if VARIABLE in os.environ else None


def config_dir_option() -> list[str]:
    """Returns the user's own folder as a command-line argument; empty if there is none."""
    folder = own_folder()
    return [] if folder is None else [f"--config-dir={folder}"]


def first_comment(text: str) -> str:
    """Returns the first comment of a YAML file that is not a Hydra header; empty if there is none."""
    comments = (line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("#") and line[:3] != "# @")
    return next(comments, "")


def summaries(group: str) -> dict[str, str]:
    """Returns name → first comment for each YAML file of a group, first in conf/, then in the user's own folder.

    Experiments that share a file are listed instead of that file, with its comment.
    """
    found: dict[str, str] = {}
    for folder in filter(None, (CONF, own_folder())):
        paths = sorted((folder / group).glob("*.yaml"))
        files = {path.stem: first_comment(path.read_text(encoding="utf-8", errors="replace")) for path in paths}
        found |= _with_variants(files) if (folder, group) == (CONF, "experiment") else files
    return found


def _with_variants(files: Mapping[str, str]) -> dict[str, str]:
    bases = {variant.base for variant in VARIANTS.values()}
    found = {name: line for name, line in files.items() if name not in bases}
    for name, variant in VARIANTS.items():
        line = variant.question or files[variant.base]
        if variant.label:
            line = f"{variant.label}: {line[0].lower()}{line[1:]}"
        found[name] = f"{line} make exp name={name}"
    return dict(sorted(found.items()))


def without_command(summary: str) -> str:
    """Removes the command at the end of a first comment."""
    return re.sub(r"\s+make (exp|study|sweep) .*", "", summary)


def experiment_names() -> list[str]:
    return [*summaries("experiment")]


def study_names() -> list[str]:
    return [*summaries("study")]
