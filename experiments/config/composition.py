"""A configuration composed from overrides, and walked through: its keys, values and parts by their dotted paths."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import lru_cache
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, OverrideType
from omegaconf import DictConfig, ListConfig, Node, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from experiments.config.folders import config_dir_option

JOB_MODE = "hydra.mode=RUN"
"""The override that a sweep gives each of its jobs, so that it does not start the sweep again."""

AUTO = "auto"
"""Of ``warm_start.train``: a fresh policy is taught, a pretrained one is taken as it is."""
REFERENCE = re.compile(r"\$\{[\w.]+\}")
"""An interpolation that is nothing but another key."""


def given_overrides() -> list[str] | None:
    """The overrides given on the command line, of a job of a sweep its own; None where Hydra started nothing."""
    return [*HydraConfig.get().overrides.task, *config_dir_option()] if HydraConfig.initialized() else None


def teaches(config: DictConfig) -> bool:
    """Whether the warm start trains the policy: by default a fresh one, and a pretrained one is taken as it is."""
    train = config.warm_start.get("train", AUTO)
    return config.policy.pretrained is None if train == AUTO else bool(train)


def parse(lines: Sequence[str]) -> list[Override]:
    """Overrides by Hydra's grammar. Raises OverrideParseException."""
    return OverridesParser.create().parse_overrides(list(lines))


@lru_cache(maxsize=256)
def composed(*lines: str) -> DictConfig:
    """The configuration of these overrides, for reading only. Hydra is initialised.

    The values of a sweep, seeds and many arms of a study have the groups in common: those are composed once, which
    takes most of the time, and values are set in a copy, as Hydra does.
    """
    overrides = parse(lines)
    values = [override for override in overrides if _only_sets_a_value(override)]
    if not values:
        return compose("config", list(lines))
    config = deepcopy(composed(*(override.input_line or "" for override in overrides if override not in values)))
    for override in values:
        OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
    return config


def _only_sets_a_value(override: Override) -> bool:
    """Whether it only replaces the value of a key; whatever else there is, Hydra itself has to read."""
    changes = override.type is OverrideType.CHANGE and override.package is None
    at_a_key = "/" not in override.key_or_group and not is_group(override) and not is_hydras(override)
    return changes and at_a_key and not override.is_sweep_override()


@lru_cache(maxsize=64)
def options(group: str, kind: ObjectType = ObjectType.CONFIG) -> list[str]:
    """The choices of a group, in every folder: config.yaml names one's own. Hydra is initialised."""
    return GlobalHydra.instance().config_loader().get_group_options(group, kind, config_name="config")


def forget_compositions() -> None:
    """Empty both caches: the search path may be another one now."""
    composed.cache_clear()
    options.cache_clear()


def groups() -> set[str]:
    return {*options("", ObjectType.GROUP)} - {"hydra"}


def is_group(override: Override) -> bool:
    return override.key_or_group in groups()


def is_hydras(override: Override) -> bool:
    """Whether it changes a key of Hydra's own."""
    return override.key_or_group.split("/")[0].split(".")[0] == "hydra"


def single_runs(overrides: Sequence[Override]) -> Iterator[list[str]]:
    """Override lists without sweeps that try every value once.

    First the first value of every sweep, then each other value beside those first ones.
    """
    choices = [_values(override) for override in overrides]
    first = [values[0] for values in choices]
    yield first
    for position, values in enumerate(choices):
        for value in values[1:]:
            yield [*first[:position], value, *first[position + 1 :]]


def _values(override: Override) -> list[str]:
    """``key=value`` for every value of a sweep, for both ends of an interval, or the override itself."""
    if not override.is_sweep_override():
        return [override.input_line or ""]
    sweep: Any = override.value()
    ends = (sweep.start, sweep.end) if isinstance(sweep, IntervalSweep) else override.sweep_string_iterator()
    return [f"{override.get_key_element()}={value}" for value in ends]


def dotted_keys(config: DictConfig) -> set[str]:
    """Every key of a mapping by its dotted path; values are not resolved."""
    return {path for path, parent, _, _ in _nodes(config) if isinstance(parent, DictConfig)}


def leaves(config: DictConfig) -> Iterator[tuple[str, object]]:
    """Every value by its dotted path: as it is written, and as it is resolved where that is possible.

    A mere reference to another value is not followed: the other has its own path.
    """
    for path, parent, key, node in _nodes(config):
        if isinstance(node, Node) and not _is_open(node):
            written = node._value()
            yield path, written
            if node._is_interpolation() and not REFERENCE.fullmatch(str(written)):
                with suppress(OmegaConfBaseException):
                    yield path, parent[key]


def dangling_reference(config: DictConfig) -> tuple[str, str] | None:
    """(dotted path, OmegaConf's message) of the first value that refers to a missing key or environment variable."""
    for path, parent, key, node in _nodes(config):
        if isinstance(node, Node) and node._is_interpolation():
            try:
                parent[key]
            except OmegaConfBaseException as error:
                if isinstance(error, InterpolationKeyError) or "${oc.env:" in str(node._value()):
                    return path, (error.msg or str(error)).splitlines()[0]  # other resolvers may only work within a run
    return None


def parts(config: DictConfig) -> Iterator[tuple[str, DictConfig]]:
    """Every mapping with a ``_target_`` by its dotted path; references are not followed."""
    for path, _, _, node in _nodes(config):
        if isinstance(node, DictConfig) and _is_open(node) and "_target_" in node:
            yield path, node


def _nodes(config: DictConfig | ListConfig, above: str = "") -> Iterator[tuple[str, Any, Any, Any]]:
    """(dotted path, parent, key, node) of everything in a configuration; references are not followed."""
    keys: Any = range(len(config)) if isinstance(config, ListConfig) else config.keys()
    for key in keys:
        node = config._get_node(key)
        yield f"{above}{key}", config, key, node
        if _is_open(node):
            yield from _nodes(node, f"{above}{key}.")  # pyright: ignore[reportArgumentType]


def _is_open(node: Any) -> bool:
    return isinstance(node, DictConfig | ListConfig) and not (
        node._is_none() or node._is_interpolation() or node._is_missing()
    )


def reward_parts(reward: Any, path: str = "reward") -> Iterator[tuple[str, DictConfig]]:
    """(dotted path, node) of the reward and of the rewards that it is made of, the outermost first."""
    if not isinstance(reward, DictConfig):
        return
    if "_target_" in reward:
        yield path, reward
    for key in reward:
        if "_target_" not in reward or key not in ("critic", "task"):  # a mapping of rewards may use these names
            yield from reward_parts(reward[key], f"{path}.{key}")


def critic_checkpoints(reward: Any) -> Iterator[tuple[str, str | None]]:
    """(dotted path, checkpoint) of every part of the reward with a critic; None: the critic stage fills it in."""
    for path, node in reward_parts(reward):
        if "critic" in node and "checkpoint" in node:
            yield path, node.checkpoint


def open_critics(config: DictConfig) -> list[str]:
    """Paths of the reward's critics that still need a checkpoint."""
    return [path for path, checkpoint in critic_checkpoints(config.reward) if checkpoint is None]
