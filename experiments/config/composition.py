"""Composes a configuration from overrides and iterates over its keys, values and parts by their dotted paths."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from copy import deepcopy
from functools import lru_cache
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import IntervalSweep, Override, OverrideType
from omegaconf import DictConfig, ListConfig, Node, OmegaConf
from omegaconf.errors import OmegaConfBaseException

JOB_MODE = "hydra.mode=RUN"
"""Override that a sweep passes to each of its jobs, so that the job does not start the sweep again."""

AUTO = "auto"
"""Value of ``warm_start.train``: a fresh policy is trained, a pretrained one is used without a warm start."""
REFERENCE = re.compile(r"\$\{([\w.]+)\}")
"""Matches an interpolation that consists of one other key."""
MERGE = "${merge:"
"""Begins an interpolation that is another mapping with some values changed."""


def trains_warm_start(config: DictConfig) -> bool:
    """Returns whether the warm start trains the policy: with ``AUTO`` only a fresh one, not a pretrained one."""
    train = config.warm_start.get("train", AUTO)
    return config.policy.pretrained is None if train == AUTO else bool(train)


def parse(lines: Sequence[str]) -> list[Override]:
    """Parses overrides by Hydra's grammar. Raises OverrideParseException."""
    return OverridesParser.create().parse_overrides(list(lines))


@lru_cache(maxsize=256)
def compose_lines(*lines: str) -> DictConfig:
    """Composes the configuration of these overrides. It is read-only; Hydra must be initialised.

    Jobs of a sweep, seeds and many arms of a study share their choices of groups. Composing the groups takes most of
    the time, so it is done once and cached. Values are then set in a copy, as Hydra does.
    """
    overrides = parse(lines)
    values = [override for override in overrides if _only_sets_a_value(override)]
    if not values:
        return expand_home(compose("config", list(lines)))
    # a copy: the cached one is shared
    config = deepcopy(compose_lines(*(override.input_line or "" for override in overrides if override not in values)))
    for override in values:
        # without merge, a mapping would replace a whole part; Hydra merges it, too
        OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
    return expand_home(config)


def expand_home(config: DictConfig) -> DictConfig:
    """Replaces ``~`` at the start of ``output_dir`` by the home folder, in place; returns the configuration.

    Every composition is followed by it, so everything that reads the configuration finds the same folder. Other paths
    are expanded where they are read.
    """
    if not OmegaConf.is_missing(config, "output_dir") and config.output_dir.startswith("~"):
        config.output_dir = os.path.expanduser(config.output_dir)
    return config


def _only_sets_a_value(override: Override) -> bool:
    """Returns whether an override only replaces the value of a key. Hydra itself composes every other override."""
    changes = override.type is OverrideType.CHANGE and override.package is None
    at_a_key = "/" not in override.key_or_group and not is_group(override) and not is_hydras(override)
    return changes and at_a_key and not override.is_sweep_override()


@lru_cache(maxsize=64)
def options(group: str, kind: ObjectType = ObjectType.CONFIG) -> list[str]:
    """Lists the options of a group in all folders; config.yaml adds the user's own. Hydra must be initialised."""
    return GlobalHydra.instance().config_loader().get_group_options(group, kind, config_name="config")


def forget_compositions() -> None:
    """Clears both caches, because the search path may have changed."""
    compose_lines.cache_clear()
    options.cache_clear()


def groups() -> set[str]:
    return {*options("", ObjectType.GROUP)} - {"hydra"}


def is_group(override: Override) -> bool:
    return override.key_or_group in groups()


def is_hydras(override: Override) -> bool:
    """Returns whether an override changes one of Hydra's own keys."""
    return override.key_or_group.split("/")[0].split(".")[0] == "hydra"


def single_runs(overrides: Sequence[Override]) -> Iterator[list[str]]:
    """Yields override lists without sweeps, which together use every value at least once.

    The first list has the first value of every sweep. Each further list replaces one of these by another value.
    """
    choices = [_values(override) for override in overrides]
    first = [values[0] for values in choices]
    yield first
    for position, values in enumerate(choices):
        for value in values[1:]:
            yield [*first[:position], value, *first[position + 1 :]]


def _values(override: Override) -> list[str]:
    """Returns ``key=value`` for each value of a sweep or for both ends of an interval, else the override itself."""
    if not override.is_sweep_override():
        return [override.input_line or ""]
    sweep: Any = override.value()
    ends = (sweep.start, sweep.end) if isinstance(sweep, IntervalSweep) else override.sweep_string_iterator()
    # the key with its + and @package, which key_or_group lacks
    return [f"{override.get_key_element()}={value}" for value in ends]


def dotted_keys(config: DictConfig) -> set[str]:
    """Returns the dotted path of every key of a mapping. Values are not resolved."""
    return {path for path, parent, _, _ in _nodes(config) if isinstance(parent, DictConfig)}


def leaves(config: DictConfig) -> Iterator[tuple[str, object]]:
    """Yields (dotted path, value) for every value as written, and again as resolved where that is possible.

    A plain reference to another key is not resolved, because that key has its own path.
    """
    for path, parent, key, node in _nodes(config):
        if isinstance(node, Node) and not _is_open(node):
            written = node._value()
            yield path, written
            if node._is_interpolation() and not REFERENCE.fullmatch(str(written)):
                with suppress(OmegaConfBaseException):
                    yield path, parent[key]


def parts(config: DictConfig) -> Iterator[tuple[str, DictConfig]]:
    """Yields (dotted path, mapping) for every mapping with a ``_target_``, also the result of a merge.

    References are not followed.
    """
    for path, parent, key, node in _nodes(config):
        if isinstance(node, Node) and node._is_interpolation() and str(node._value()).startswith(MERGE):
            with suppress(OmegaConfBaseException):
                node = parent[key]
        if isinstance(node, DictConfig) and _is_open(node) and "_target_" in node:
            yield path, node


def _nodes(config: DictConfig | ListConfig, above: str = "") -> Iterator[tuple[str, Any, Any, Any]]:
    """Yields (dotted path, parent, key, node) for every node of a configuration. References are not followed."""
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
    """Yields (dotted path, node) for the reward and the rewards nested in it, the outermost first."""
    if not isinstance(reward, DictConfig):
        return
    if "_target_" in reward:
        yield path, reward
    for key in reward:
        if "_target_" not in reward or key not in ("critic", "task"):  # a mapping of rewards may use these names
            yield from reward_parts(reward[key], f"{path}.{key}")


def critic_checkpoints(reward: Any) -> Iterator[tuple[str, str | None]]:
    """Yields (dotted path, checkpoint) for each reward with a critic. None: the critic stage supplies it."""
    for path, node in reward_parts(reward):
        if "critic" in node and "checkpoint" in node:
            yield path, node.checkpoint


def open_critics(config: DictConfig) -> list[str]:
    """Lists the dotted paths of the rewards whose critic has no checkpoint yet."""
    return [path for path, checkpoint in critic_checkpoints(config.reward) if checkpoint is None]
