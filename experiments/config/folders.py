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

from conf import VARIANTS, Variant

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
        if taken := next((name for name in names if _is_in_conf(name)), None):
            raise ConfigDirError(f"{prefix}{folder}: {taken} is an option of conf/ too; give yours another name")
        os.environ[VARIABLE] = str(Path(folder).resolve())
    return left


def _is_in_conf(name: Path) -> bool:
    """Returns whether ``conf/`` has this option, as a file or as a row of a table."""
    return (CONF / name).is_file() or name.stem in VARIANTS.get(name.parent.as_posix(), {})


def is_ours(path: str) -> bool:
    """Whether a dotted path belongs to this project."""
    return path.partition(".")[0] in OURS


def own_folder() -> Path | None:
    return Path(os.environ[VARIABLE]) if VARIABLE in os.environ else None


def config_dir_option() -> list[str]:
    folder = own_folder()
    return [] if folder is None else [f"--config-dir={folder}"]


def first_comment(text: str) -> str:
    """Returns the first comment of a YAML file that is not a Hydra header; empty if there is none."""
    comments = (line.lstrip("# ").strip() for line in text.splitlines() if line.startswith("#") and line[:3] != "# @")
    return next(comments, "")


def summaries(group: str) -> dict[str, str]:
    """Returns name → first comment for each option of a group, first of conf/, then of the user's own folder.

    Experiments that share a file are listed instead of that file, with its comment.
    """
    found, variants = _first_comments(CONF / group), VARIANTS.get(group, {})
    rows = {name: _summary(variant, found) for name, variant in variants.items()}
    if group == "experiment":
        rows = {name: f"{line} make exp name={name}" for name, line in rows.items()}
        for base in {variant.base for variant in variants.values()}:
            found.pop(base, None)
    own = own_folder()
    return dict(sorted((found | rows).items())) | (_first_comments(own / group) if own is not None else {})


def _first_comments(folder: Path) -> dict[str, str]:
    paths = sorted(folder.glob("*.yaml"))
    return {path.stem: first_comment(path.read_text(encoding="utf-8", errors="replace")) for path in paths}


def _summary(variant: Variant, files: Mapping[str, str]) -> str:
    line = variant.summary or files[variant.base]
    return f"{variant.label}: {line[0].lower()}{line[1:]}" if variant.label else line


def without_command(summary: str) -> str:
    """Removes the command at the end of a first comment."""
    return re.sub(r"\s+make (exp|study|sweep) .*", "", summary)


def experiment_names() -> list[str]:
    return [*summaries("experiment")]


def study_names() -> list[str]:
    return [*summaries("study")]
