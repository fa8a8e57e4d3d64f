"""Overrides of Hydra's own keys, ``hydra.sweep.dir=…`` or ``hydra/job_logging=…``, answered as those of ours are."""

from __future__ import annotations

from collections.abc import Sequence

from hydra import compose
from hydra.core.config_store import ConfigStore
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.cli.dotted import dotted_keys
from experiments.cli.plugins import GROUPS
from experiments.cli.suggestions import did_you_mean, nearest
from experiments.system.first_line import first_line

ROOM = "hydra"
OF_A_JOB = "hydra.mode=RUN"
"""What a sweep gives each of its jobs: right, and in no need of a second."""


def wrong_hydra(overrides: Sequence[Override], choices: Sequence[str]) -> str | None:
    """The first mistake in them; None where Hydra will take them all. Hydra is initialised.

    Args:
        overrides: ours too.
        choices: the lines of ours that choose in a group: a preset of ``conf/sweep`` has keys of Hydra.
    """
    ours = [override for override in overrides if is_hydras(override)]
    groups = [override for override in ours if "/" in override.key_or_group]
    keys = [override for override in ours if override not in groups and override.input_line != OF_A_JOB]
    if (sentence := next((said for group in groups if (said := _wrong_group(group))), None)) is not None:
        return sentence
    if not keys:
        return None
    lines = [*choices, *(group.input_line or "" for group in groups)]
    base = compose("config", lines, return_hydra_config=True)
    OmegaConf.set_struct(base, True)
    return next((said for key in keys if (said := _wrong_key(base, key))), None)


def is_hydras(override: Override) -> bool:
    return override.key_or_group.split("/")[0].split(".")[0] == ROOM


def _wrong_group(override: Override) -> str | None:
    group, option = override.key_or_group, override.value()
    known = [f"{ROOM}/{name}" for name in options_of(ROOM, ObjectType.GROUP)]
    if group not in known:
        return f"{group}={option}: no such key; {did_you_mean(group, known)}"
    options = options_of(group)
    if option is None or option in options:
        return None
    return f"{group}={option}: no such {group.rpartition('/')[2]}; {did_you_mean(str(option), options)}"


def options_of(group: str, kind: ObjectType = ObjectType.CONFIG) -> list[str]:
    """Of all folders: it is config.yaml that names one's own. Hydra is initialised."""
    return GlobalHydra.instance().config_loader().get_group_options(group, kind, config_name="config")


def _wrong_key(base: DictConfig, override: Override) -> str | None:
    """What Hydra refuses: it takes values by the same call. Keys that are added or removed are left to it."""
    if override.is_add() or override.is_force_add() or override.is_delete():
        return None
    key, typed = override.key_or_group, override.input_line
    try:
        OmegaConf.update(base, key, override.value(), merge=True)
    except (OmegaConfBaseException, AssertionError) as error:  # the latter under a key that holds null
        known = dotted_keys(base.hydra, above=f"{ROOM}.")
        if key in known:
            return f"{typed}: {first_line(error)}"
        room = OmegaConf.select(base, key.rpartition(".")[0])
        if isinstance(room, DictConfig) and OmegaConf.get_type(room) is dict:
            return f"{typed}: to add a key write +{typed}"
        return f"{typed}: no such key; {_meant(key, base, known)}"
    return None


def _meant(key: str, base: DictConfig, known: set[str]) -> str:
    """The nearest key of its room, of another launcher or sweeper in that room, or of all."""
    room, _, last = key.rpartition(".")
    inside = {other.removeprefix(f"{room}.") for other in known if other.startswith(f"{room}.")}
    if (meant := nearest(last, inside)) is not None:
        return f"did you mean {f'{room}.{meant}'!r}?"
    if (group := room.replace(".", "/")) in GROUPS:
        theirs = _keys_of_options(group)
        meant = nearest(last, set().union(*theirs.values()) - inside)
        if having := [option for option, keys in theirs.items() if meant in keys]:
            asked = "" if meant == last else f"did you mean {f'{room}.{meant}'!r}? "
            return f"{asked}{group}={base.hydra.runtime.choices[group]} has none, add {group}={' or '.join(having)}"
    return did_you_mean(key, known if nearest(key, known) else {other for other in known if other.count(".") == 1})


def _keys_of_options(group: str) -> dict[str, set[str]]:
    """Installed option → its keys."""
    store = ConfigStore.instance()
    nodes = {option: store.load(f"{group}/{option}.yaml").node for option in options_of(group)}
    return {option: dotted_keys(OmegaConf.create(node)) for option, node in nodes.items()}
