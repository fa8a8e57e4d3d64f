"""Access to the product's configuration for tests: the YAML files and their compositions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose
from omegaconf import DictConfig, OmegaConf

from conf import VARIANTS
from experiments.config import composition
from experiments.config.folders import experiment_names
from experiments.schema import composing

CONF = Path(__file__).resolve().parent.parent / "conf"
EXPERIMENTS = sorted(experiment_names())
SCALES = sorted((path.stem for path in (CONF / "scale").glob("*.yaml")), key=lambda scale: (scale != "laptop", scale))
"""The default is first."""
NAMING_OTHERS = ("task", "policy", "budget", "warm_start", "objective", "reward", "rollout")
"""Groups whose files name options of other groups, so that they cannot be composed alone."""


@cache
def composed(*overrides: str, config: str = "config") -> DictConfig:
    """Returns a cached configuration, which must not be changed, composed as in studies.

    It equals Hydra's, by config/test_composition.py, and is faster if overrides set values.
    """
    with composing():
        return composition.compose_lines(*overrides) if config == "config" else compose(config, list(overrides))


def nodes(config: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yields every mapping with a ``_target_`` and its path."""
    if isinstance(config, dict):
        if "_target_" in config:
            yield path, config
        for key, value in config.items():
            yield from nodes(value, f"{path}.{key}")
    elif isinstance(config, list):
        for index, value in enumerate(config):
            yield from nodes(value, f"{path}[{index}]")


def options(group: str) -> list[str]:
    """Returns the options of a group, files and rows of a table, without ``base``, whose keys they share."""
    return sorted({*VARIANTS.get(group, {}), *(path.stem for path in (CONF / group).glob("*.yaml"))} - {"base"})


def whole(group: str, option: str) -> dict[str, Any]:
    """Returns the content of an option, merged with the sibling that it extends, if any."""
    path = CONF / group / f"{option}.yaml"
    if path.is_file() and ("defaults" not in raw(path) or path.read_text().startswith("# @package")):
        return raw(path)
    if group == "experiment":
        return content(option)
    made: Any = OmegaConf.to_container(part_of(group, option), resolve=False)
    return made


def raw(path: Path) -> dict[str, Any]:
    content: Any = OmegaConf.to_container(OmegaConf.load(path), resolve=False)
    return content


@cache
def part_of(group: str, option: str) -> Any:
    """Returns the unresolved node of a group's option, mostly in a fifth of the time of a full composition."""
    if group in NAMING_OTHERS:
        return composed(f"{group}={option}")._get_node(group)
    return composed(config=f"{group}/{option}")._get_node(group)


def content(experiment: str) -> dict[str, Any]:
    """Returns what an experiment's file, or its row of ``VARIANTS``, has."""
    if experiment in VARIANTS["experiment"]:
        return VARIANTS["experiment"][experiment].node()
    return raw(CONF / "experiment" / f"{experiment}.yaml")


def overridden(experiment: str) -> dict[str, str]:
    """Returns group → option from the defaults lists of an experiment and of those that it inherits."""
    groups: dict[str, str] = {}
    for entry in content(experiment).get("defaults", []):
        if isinstance(entry, dict):
            groups |= {key.removeprefix("override /"): option for key, option in entry.items()}
        elif entry != "_self_":
            groups |= overridden(entry)
    return groups


def values(experiment: str) -> dict[str, Any]:
    """Returns the values that an experiment, or one that it inherits, sets inside its parts."""
    here = content(experiment)
    set_here: Any = {key: value for key, value in here.items() if key not in ("defaults", "name", "stages")}
    for entry in here.get("defaults", []):
        if isinstance(entry, str) and entry != "_self_":
            set_here = OmegaConf.to_container(OmegaConf.merge(values(entry), set_here))
    return set_here
