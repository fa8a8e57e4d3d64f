"""A mistyped command line answered in one sentence, from the YAML files alone; Hydra is all that is imported."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from copy import deepcopy
from functools import lru_cache
from typing import Any

from hydra import compose, initialize_config_module
from hydra.core.object_type import ObjectType
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, OverrideType
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, ListConfig, OmegaConf
from omegaconf.errors import InterpolationKeyError, OmegaConfBaseException

from experiments.cli.dotted import dotted_keys
from experiments.cli.hydra_words import is_hydras, options_of, wrong_hydra
from experiments.cli.plugins import missing_plugin, needs_optuna
from experiments.cli.suggestions import did_you_mean, did_you_mean_one_of
from experiments.cli.sweep_variants import variants
from experiments.system.first_line import first_line
from experiments.system.secret_values import secret_in
from experiments.validation.contradictions import READ_THERE, SECRET, contradiction
from experiments.validation.enumerated import takes_several_kinds

VARIABLE = "${oc.env:"
"""A reference to a variable of the environment, which is known before a run."""


def explain(overrides: Sequence[str]) -> str | None:
    """What is wrong with these overrides, in one sentence; None where they compose. Every value of a sweep is tried."""
    return next(explain_each([overrides]))


def explain_each(commands: Iterable[Sequence[str]]) -> Iterator[str | None]:
    """The same of several command lines; what they have alike is composed once, and kept for who composes it next."""
    for cached in (composed, _options):
        cached.cache_clear()  # of another search path, perhaps
    return map(_explain, commands)


def _explain(overrides: Sequence[str]) -> str | None:
    try:
        parsed = OverridesParser.create().parse_overrides(list(overrides))
    except OverrideParseException as error:
        return f"{error.override!r} is no override: write key=value"
    if (sentence := _first(_secret(override) for override in parsed)) is not None:
        return sentence
    with initialize_config_module("conf", version_base="1.3"):
        sentence = _first(missing_plugin(override) for override in parsed) or needs_optuna(parsed)
        if sentence is not None:
            return sentence
        sentence = _first(_explain_words(run) for run in variants(parsed)) or _explain_hydra(parsed)
        return sentence or _explain_preset(parsed)


def _explain_hydra(overrides: Sequence[Override]) -> str | None:
    typed = OverridesParser.create().parse_overrides(next(variants(overrides)))
    return wrong_hydra(typed, [_line(override) for override in typed if _is_group(override)])


def _explain_preset(overrides: Sequence[Override]) -> str | None:
    """Every value that a preset of ``conf/sweep/`` varies, beside the first ones of what was typed, which wins."""
    if all(override.key_or_group != "sweep" for override in overrides):
        return None
    typed = next(variants(overrides))
    params = compose("config", typed, return_hydra_config=True).hydra.sweeper.get("params") or {}
    varied = OverridesParser.create().parse_overrides([f"{key}={values}" for key, values in params.items()])
    return _first(_explain_words([*run, *typed]) for run in variants(varied))


def _explain_words(words: Sequence[str]) -> str | None:
    return _explain_run(OverridesParser.create().parse_overrides(list(words)))


def _explain_run(overrides: Sequence[Override]) -> str | None:
    ours = [override for override in overrides if not is_hydras(override)]
    groups = [override for override in ours if _is_group(override)]
    if (sentence := _first(_wrong_mark(o) for o in ours) or _first(_wrong_option(o) for o in groups)) is not None:
        return sentence
    try:
        base = composed(*map(_line, groups))
        keys = [override for override in ours if override not in groups]
        wrong = _first(_wrong_key(base, o) for o in keys) or _first(_wrong_value(base, o) for o in keys)
        if wrong is not None:
            return wrong
        whole = composed(*map(_line, ours))
        return _first(_leads_nowhere(whole, override) for override in keys) or contradiction(whole)
    except MissingConfigException as error:
        return _missing(error.missing_cfg_file or "")
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        cause = error.__cause__ or error
        key = getattr(cause, "full_key", None)
        return f"{key}: {first_line(cause)}" if key else first_line(cause)


@lru_cache(maxsize=256)
def composed(*lines: str) -> DictConfig:
    """For reading. The values of a sweep stand on the same groups, and so do seeds and many arms of a study: groups are
    composed once, which takes most of the time, and values set in a copy, as Hydra does. Hydra is initialised."""
    overrides = OverridesParser.create().parse_overrides(list(lines))
    values = [override for override in overrides if _is_value(override)]
    if not values:
        return compose("config", list(lines))
    config = deepcopy(composed(*(_line(override) for override in overrides if override not in values)))
    for override in values:
        OmegaConf.update(config, override.key_or_group, override.value(), merge=True)
    return config


def _is_value(override: Override) -> bool:
    """One that only replaces the value of a key; whatever else there is, Hydra itself has to read."""
    changes = override.type is OverrideType.CHANGE and override.package is None
    at_a_key = "/" not in override.key_or_group and not _is_group(override) and not is_hydras(override)
    return changes and at_a_key and not override.is_sweep_override()


def _secret(override: Override) -> str | None:
    """A secret of the environment among the overrides, Hydra's own included: its value is not said."""
    name = secret_in(_line(override))
    return None if name is None else f"{override.key_or_group} {SECRET} {name}: {READ_THERE}"


def _first(sentences: Any) -> str | None:
    return next((sentence for sentence in sentences if sentence is not None), None)


def _line(override: Override) -> str:
    return override.input_line or ""


def _is_group(override: Override) -> bool:
    return override.key_or_group in _groups()


def _groups() -> set[str]:
    return {*_options("", ObjectType.GROUP)} - {"hydra"}


_options = lru_cache(maxsize=64)(options_of)


def _wrong_mark(override: Override) -> str | None:
    if override.is_add() or override.is_force_add():
        return f"{_line(override)}: a new key cannot be added; every argument already has its key, write key=value"
    return f"{_line(override)}: a key cannot be removed; write key=null" if override.is_delete() else None


def _wrong_option(override: Override) -> str | None:
    group, option = override.key_or_group, override.value()
    options = _options(group)
    if option is None or option in options:
        return None
    return f"{group}={option}: no such {group}; {did_you_mean_one_of(str(option), options)}"


def _wrong_key(base: DictConfig, override: Override) -> str | None:
    key = override.key_or_group
    known = dotted_keys(base)
    if key in known:
        return None
    among = _nearest_room(key, known | _groups())
    room = f"{key.rpartition('.')[0]}."
    inside = [other.removeprefix(room) for other in among if other.startswith(room)]
    keys = {name for name in (other.partition(".")[0] for other in inside or among) if not name.startswith("_")}
    return f"{key}: no such key; {did_you_mean_one_of(key, among, all_of=keys or among)}"


def _nearest_room(key: str, known: set[str]) -> set[str]:
    """What to choose from: the keys of the deepest room that exists, or all of them where the room is unknown."""
    room = key.rpartition(".")[0]
    inside = {other for other in known if room and other.startswith(f"{room}.")}
    return inside or known


def _wrong_value(base: DictConfig, override: Override) -> str | None:
    """A value of another kind than the one it replaces; null and interpolations are left to the part itself."""
    key, value = override.key_or_group, override.value()
    if value is None or (isinstance(value, str) and value.startswith("${")):
        return None
    wanted, given = kind(OmegaConf.select(base, key)), kind(value)
    if wanted in (None, given) or takes_several_kinds(base, key):
        return None
    return f"{key}={value}: it takes {wanted}, got {given}"


def _leads_nowhere(config: DictConfig, override: Override) -> str | None:
    """A reference to a key or a variable that there is not: where it is read, its own key is not known any more."""
    try:
        OmegaConf.select(config, override.key_or_group)
    except OmegaConfBaseException as error:
        if isinstance(error, InterpolationKeyError) or VARIABLE in _line(override):
            return f"{_line(override)}: {first_line(error)}"
    return None  # also of what a resolver knows in a run only


def kind(value: Any) -> str | None:
    """What sort of value this is, in words; None for null, which says nothing."""
    kinds: tuple[tuple[Any, str], ...] = (
        (bool, "true or false"),
        ((int, float), "a number"),
        (str, "a word"),
        ((list, ListConfig), "a list"),
        ((dict, DictConfig), "a mapping of keys"),
    )
    return next((name for type_, name in kinds if isinstance(value, type_)), None)


def _missing(path: str) -> str:
    group, _, option = path.rpartition("/")
    options = _options(group)
    return f"these choices together need {group}={option}, which does not exist; {did_you_mean(option, options)}"
