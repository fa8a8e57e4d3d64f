"""From configuration to objects: the only caller of Hydra's ``instantiate``."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.system.terminal import first_line


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
            raise AssemblyError(f"{key}: {first_line(error.__cause__)}") from error
        if isinstance(error.__cause__, ImportError):
            said = " ".join(str(error.__cause__).split())  # Hydra names the target in one line, the cause in the next
            raise AssemblyError(f"{key}: {said}") from error
        raise
    except OmegaConfBaseException as error:
        raise AssemblyError(f"{key}: {first_line(error)}") from error


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
