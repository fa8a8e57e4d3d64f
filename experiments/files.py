"""Small files written whole or not at all, so that a reader or a killed run never sees half of one."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from experiments.secret_values import concealed


def write_text(path: Path, text: str) -> None:
    """Write a text in which no secret of the environment stands: such files are shared."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    partial.write_text(concealed(text), encoding="utf-8")
    os.replace(partial, path)


def write_json(path: Path, content: Mapping[str, Any] | Sequence[Any]) -> None:
    write_text(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")


def write_yaml(path: Path, content: Mapping[str, Any]) -> None:
    write_text(path, OmegaConf.to_yaml(OmegaConf.create(dict(content))))
