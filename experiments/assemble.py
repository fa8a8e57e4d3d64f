"""Builds objects from the configuration. This is the only module that calls Hydra's ``instantiate``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from contrastive_reasoning.errors import EndsRun
from experiments.config.composition import REFERENCE
from experiments.system.terminal import USAGE_ERROR, first_line


class AssemblyError(EndsRun, ValueError):
    """Raised if a part rejects its arguments or two parts do not fit together; the message is one sentence."""

    exit_code = USAGE_ERROR


def build(config: DictConfig, key: str) -> Any:
    """Builds the object that the node ``key`` describes, inner parts first. A node without ``_target_`` gives a dict.

    Raises:
        AssemblyError: if the node cannot be resolved, a constructor rejects a value, or a file or a package is missing.
    """
    try:
        # without _convert_, parts would get OmegaConf's containers in place of lists and dictionaries
        return instantiate(OmegaConf.select(config, key), _convert_="all")
    except InstantiationException as error:
        if isinstance(error.__cause__, ValueError | TypeError | OSError):
            message = first_line(error.__cause__)
            raise AssemblyError(f"{key}: {message}{_set_elsewhere(config, key, message)}") from error
        if isinstance(error.__cause__, ImportError):
            message = " ".join(str(error.__cause__).split())  # Hydra puts the target and the cause on separate lines
            raise AssemblyError(f"{key}: {message}") from error
        raise
    except OmegaConfBaseException as error:
        raise AssemblyError(f"{key}: {first_line(error)}") from error


def _set_elsewhere(config: DictConfig, key: str, message: str) -> str:
    """Names the keys that the arguments in ``message`` refer to, as a suffix of it; empty if there are none."""
    arguments: Any = OmegaConf.to_container(OmegaConf.select(config, key), resolve=False)
    sources = {
        name: source[1]
        for name, value in (arguments.items() if isinstance(arguments, dict) else ())
        if re.search(rf"\b{name}\b", message) and (source := REFERENCE.fullmatch(str(value))) and source[1] != name
    }
    return f" ({', '.join(f'{name} is {source}' for name, source in sources.items())})" if sources else ""


def with_values(config: DictConfig, values: Mapping[str, Any]) -> DictConfig:
    """Returns a copy with some keys set by their dotted path; interpolations use the new values.

    Raises:
        AssemblyError: if the configuration has no such key.
    """
    copy = deepcopy(config)
    for key, value in values.items():
        try:
            OmegaConf.update(copy, key, value)
        except OmegaConfBaseException as error:
            raise AssemblyError(f"{key}: {first_line(error)}") from error
    return copy
