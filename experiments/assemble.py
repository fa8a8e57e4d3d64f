"""From configuration to objects: the only caller of Hydra's ``instantiate``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.system.terminal import first_line

REFERENCE = re.compile(r"\$\{([\w.]+)\}")
"""A value that is that of another key."""


class AssemblyError(ValueError):
    """A part refused its arguments, or two parts do not fit; the message is one sentence for the person who asked."""


def build(config: DictConfig, key: str) -> Any:
    """The object that the node ``key`` describes, its parts built first; a node without ``_target_`` gives a dict.

    Raises:
        AssemblyError: where a constructor refuses a value or a file is missing.
    """
    try:
        return instantiate(OmegaConf.select(config, key), _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, ValueError | TypeError | OSError):
            said = first_line(error.__cause__)
            raise AssemblyError(f"{key}: {said}{_set_elsewhere(config, key, said)}") from error
        if isinstance(error.__cause__, ImportError):
            said = " ".join(str(error.__cause__).split())  # Hydra names the target in one line, the cause in the next
            raise AssemblyError(f"{key}: {said}") from error
        raise
    except OmegaConfBaseException as error:
        raise AssemblyError(f"{key}: {first_line(error)}") from error


def _set_elsewhere(config: DictConfig, key: str, said: str) -> str:
    """Which keys the arguments named in ``said`` take their values from, to be added to it; empty where from none."""
    arguments: Any = OmegaConf.to_container(OmegaConf.select(config, key), resolve=False)
    sources = {
        name: source[1]
        for name, value in (arguments.items() if isinstance(arguments, dict) else ())
        if re.search(rf"\b{name}\b", said) and (source := REFERENCE.fullmatch(str(value)))
    }
    return f" ({', '.join(f'{name} is {source}' for name, source in sources.items())})" if sources else ""


def with_values(config: DictConfig, values: Mapping[str, Any]) -> DictConfig:
    """A copy with some keys set by their dotted path; interpolations see the new values.

    Raises:
        AssemblyError: for a key that the configuration does not have.
    """
    copy = deepcopy(config)
    for key, value in values.items():
        try:
            OmegaConf.update(copy, key, value)
        except OmegaConfBaseException as error:
            raise AssemblyError(f"{key}: {first_line(error)}") from error
    return copy
