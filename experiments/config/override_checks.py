"""Checks the overrides of a command line against the YAML files, with one sentence per error; imports only Hydra."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress

import yaml
from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from experiments.config.composition import (
    JOB_MODE,
    compose_lines,
    dotted_keys,
    forget_compositions,
    groups,
    is_group,
    is_hydras,
    options,
    parse,
    single_runs,
)
from experiments.config.contradictions import READ_THERE, SECRET, contradiction
from experiments.config.folders import CONF, own_folder
from experiments.config.hints import command_line, did_you_mean, install_command, nearest
from experiments.config.known_models import missing_model
from experiments.schema import composing
from experiments.system.secrets import secret_finder
from experiments.system.terminal import one_line

GLOBAL = "# @package _global_"
EXTRAS = {
    "hydra/launcher=joblib": "joblib",
    "hydra/launcher=submitit_slurm": "slurm",
    "hydra/launcher=submitit_local": "slurm",
    "hydra/sweeper=optuna": "optuna",
}
"""Choice of a Hydra plugin → the extra of this package that installs it."""
SEVERAL = ("logger",)
"""Groups of which a run may have several options, GROUP=[ONE,OTHER]."""
ESCAPES = (r"\n", r"\t", r"\r")
OMEGACONF_TRAILER = re.compile(r"\s+full_key: (.*)\s+(?:reference_type=.*\s+)?object_type=.*")
HYDRA_HEADING = re.compile(r"\w+ raised while composing config:\s*")
HYDRA_PLACE = re.compile(r"In '[^']*': ")
WRONG_TYPE = re.compile(r"Value (?P<value>.*) of type '(?P<given>\w+)' could not be converted to (?P<wanted>\w+)")
KINDS = {"Integer": "a whole number", "Float": "a number", "Boolean": "true or false"}
PLUGIN_KEY = re.compile(r"hydra\.(?P<kind>launcher|sweeper)\.")


def override_error(overrides: Sequence[str], *, multirun: bool = True, loads: bool = False) -> str | None:
    """Returns the first error of these overrides; None if they compose. Every value of a sweep is tried.

    Args:
        overrides: the overrides of one command line.
        multirun: whether an override may have several values.
        loads: whether the policy will be loaded, so that a model of ``make model`` must already be fetched.
    """
    return next(override_errors([overrides], multirun=multirun, loads=loads))


def override_errors(
    commands: Iterable[Sequence[str]], *, multirun: bool = True, loads: bool = False
) -> Iterator[str | None]:
    """Yields the first error, or None, of each command line. Shared group choices are composed once and cached."""
    forget_compositions()
    return (_command_error(overrides, multirun, loads) for overrides in commands)


def starts_multirun(overrides: Sequence[str]) -> bool:
    """Returns whether overrides start a multirun without ``-m``: by Hydra's mode or by a preset of ``conf/sweep``."""
    return JOB_MODE not in overrides and any(line.startswith(("hydra.mode=MULTIRUN", "sweep=")) for line in overrides)


def nothing_to_sweep(lines: Sequence[str]) -> str | None:
    """Returns an error for a multirun of one job, unless overrides set Hydra's own keys, such as a launcher."""
    overrides = parse(lines)
    if any(override.is_sweep_override() or is_hydras(override) for override in overrides):
        return None
    with composing():
        if compose("config", list(lines), return_hydra_config=True).hydra.sweeper.get("params"):
            return None
        presets = "|".join(options("sweep"))
        return f"nothing to sweep: give a key several values, over='seed=0,1,2', or choose a preset, sweep={presets}"


def _command_error(lines: Sequence[str], multirun: bool, loads: bool) -> str | None:
    overrides: list[Override] = []
    for line in lines:
        try:
            overrides.append(OverridesParser.create().parse_override(line))
        except HydraException as error:
            return _grammar_error(line, one_line(error))
    secret_in = secret_finder()
    for override in overrides:
        line, key = _line(override), override.key_or_group
        if (name := secret_in(line)) is not None:
            return f"{key} {SECRET} {name}: {READ_THERE}"
        if override.is_sweep_override() and not multirun and key in SEVERAL:
            return f"{line}: write {key}=[{line.partition('=')[2]}] to use all of these in one run"
        if override.is_sweep_override() and not multirun:
            return (
                f"{line}: several values, and this is a single run; to run each of them use "
                f"{command_line('sweep')}, for one value that holds a comma quote it: {shlex.quote(_with_quotes(line))}"
            )
        if key in ("hydra.sweep.dir", "hydra.run.dir") and str(override.value()).startswith("~"):
            return f"{line}: Hydra does not replace ~ by the home folder; give the whole path"
        if (repeated := _repeated_value(override)) is not None:
            return repeated
        if escape := next((escape for escape in ESCAPES if escape in line), None):
            return (
                f"{key}: an override reads {escape} as two characters, a backslash and a letter; "
                "give the character itself, in a shell by $'…', or set the value in a YAML file"
            )
    with composing():
        return (
            _first(_plugin_error(override, overrides) for override in overrides)
            or _first(_run_error(parse(run), loads) for run in single_runs(overrides))
            or _hydra_error(overrides, loads)
        )


def _repeated_value(override: Override) -> str | None:
    """Returns an error for a sweep that has a value twice."""
    if not override.is_sweep_override() or not override.is_discrete_sweep():
        return None
    values = list(override.sweep_string_iterator())
    repeated = next((value for place, value in enumerate(values) if value in values[:place]), None)
    if repeated is None:
        return None
    key = override.key_or_group
    return (
        f"{_line(override)}: {key} has the value {repeated} twice, whose jobs would count as two; give each value once"
    )


def _grammar_error(line: str, reason: str) -> str:
    """Describes an override that Hydra's grammar rejects; if quotes help, shows them."""
    hint = "write key=value"
    if "=" in line:
        with suppress(OverrideParseException):
            parse([_with_quotes(line)])
            hint = f"quote its value, in a shell twice: {shlex.quote(_with_quotes(line))}"
    return f"{line!r} is not a valid override: {hint} (Hydra: {reason})"


def _with_quotes(line: str) -> str:
    key, _, value = line.partition("=")
    return f"{key}={QuotedString(text=value, quote=Quote.double).with_quotes()}"


def _plugin_error(override: Override, overrides: Sequence[Override]) -> str | None:
    """Returns an error for a launcher or sweeper that is not installed, or a sweeper that is needed but not chosen."""
    if override.is_sweep_override() and not override.is_discrete_sweep():
        if all(other.key_or_group != "hydra/sweeper" for other in overrides):
            return f"{_line(override)}: a sweep without steps needs hydra/sweeper=optuna"
        return None
    choice = f"{override.key_or_group}={override.value()}"
    if choice not in EXTRAS or override.is_delete() or override.value() in options(override.key_or_group):
        return None
    return f"{choice} is not installed: {install_command(EXTRAS[choice])}"


def _hydra_error(overrides: Sequence[Override], loads: bool) -> str | None:
    """Checks Hydra's own keys and every value of a ``conf/sweep/`` preset. The overrides take precedence over it."""
    given = next(single_runs(overrides))
    presets = [override for override in overrides if override.key_or_group == "sweep"]
    if several := next((override for override in presets if override.is_sweep_override()), None):
        return f"{_line(several)}: Hydra would sweep none of them; choose one, and give the other's values in over"
    preset = bool(presets)
    if not preset and not any(is_hydras(override) and _line(override) != JOB_MODE for override in overrides):
        return None
    try:
        hydras = compose("config", given, return_hydra_config=True).hydra
    except (HydraException, OmegaConfBaseException) as error:
        return _composition_error(error)
    if hydras.launcher.get("n_jobs") == 0:
        return "hydra.launcher.n_jobs=0: must be a number of jobs at a time, or -1 for one per core"
    params = (hydras.sweeper.get("params") or {}) if preset else {}
    varied = parse([f"{key}={values}" for key, values in params.items()])
    return _first(map(_repeated_value, varied)) or _first(
        _run_error(parse([*run, *given]), loads) for run in single_runs(varied)
    )


def _run_error(overrides: Sequence[Override], loads: bool) -> str | None:
    ours = [override for override in overrides if not is_hydras(override)]
    chosen = [override for override in ours if is_group(override)]
    keys = [override for override in ours if override not in chosen]
    base: DictConfig | None = None
    try:
        wrong = _first(_mark_error(override) for override in ours) or _first(_choice_error(o) for o in chosen)
        if wrong is not None:
            return wrong
        base = compose_lines(*map(_line, chosen))
        for override in keys:  # OmegaConf would replace a whole part
            replaced = OmegaConf.select(base, override.key_or_group, throw_on_resolution_failure=False)
            if isinstance(replaced, DictConfig) and isinstance(override.value(), bool | int | float | list):
                return f"{_line(override)}: it takes a mapping of keys"
        whole = compose_lines(*map(_line, ours))
        return contradiction(whole) or (missing_model(whole) if loads else None)
    except yaml.YAMLError as error:
        return one_line(error)
    except (HydraException, OmegaConfBaseException, ValueError) as error:
        return _first(_file_error(override) for override in chosen) or _composition_error(error, base)


def _file_error(override: Override) -> str | None:
    """Returns an error for a user's file that is not UTF-8 or lacks the header that its group has in conf/."""
    group, option, folder = override.key_or_group, override.value(), own_folder()
    path = None if folder is None else folder / group / f"{option}.yaml"
    if path is None or not path.is_file():
        return None
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        return f"{path}: {error}"
    theirs = sorted((CONF / group).glob("*.yaml"))
    if GLOBAL in text or not theirs or GLOBAL not in theirs[0].read_text(encoding="utf-8"):
        return None
    return f"{path}: its first line must be '{GLOBAL}', as in every file of {group}/"


def _composition_error(error: BaseException, base: DictConfig | None = None) -> str:
    """Returns the message of Hydra or OmegaConf in one line, with the key in question and the nearest valid one.

    ``base``: the configuration in which the key is unknown; None: the default one.
    """
    if isinstance(error, MissingConfigException):
        group, _, option = (error.missing_cfg_file or "").rpartition("/")
        hint = did_you_mean(option, options(group))
        return f"these choices together need {group}={option}, which does not exist; {hint}"
    message = str(error.__cause__ or error)
    trailer = OMEGACONF_TRAILER.search(message)
    key = trailer[1].strip() if trailer else ""
    text = " ".join(HYDRA_HEADING.sub("", OMEGACONF_TRAILER.sub("", message)).split())
    place = found[0] if (found := HYDRA_PLACE.match(text)) else ""
    reason = text.removeprefix(place)
    if (wrong := WRONG_TYPE.fullmatch(reason)) and wrong["wanted"] in KINDS:
        given = f"the text {wrong['value']}" if wrong["given"] == "str" else wrong["value"].strip("'")
        return f"{place}{key} must be {KINDS[wrong['wanted']]}, got {given}"
    if key and reason == f"field '{key.rpartition('.')[2]}' is not Optional":
        return f"{place}{key} cannot be null"
    if key and f"Key '{key.rpartition('.')[2]}'" in reason:
        if plugin := PLUGIN_KEY.match(key):
            group = f"hydra/{plugin['kind']}"
            known = {*options(group), *(one.partition("=")[2] for one in EXTRAS if one.startswith(f"{group}="))}
            kind = plugin["kind"]
            return f"{key}: no such key of the chosen {kind}; choose another with {group}={'|'.join(sorted(known))}"
        if not key.startswith("hydra"):
            return f"{place}{_unknown_key(key, dotted_keys(base or compose_lines()))}"
        near = nearest(key, dotted_keys(compose("config", return_hydra_config=True)))
        if near is not None and not key.startswith(f"{near}."):
            return f"{key}: no such key; did you mean {near!r}?"
    return f"{place}{key}: {reason}" if key else text


def _mark_error(override: Override) -> str | None:
    if override.is_add() or override.is_force_add():
        return f"{_line(override)}: a new key cannot be added; every argument already has its key, write key=value"
    return f"{_line(override)}: a key cannot be removed; write key=null" if override.is_delete() else None


def _choice_error(override: Override) -> str | None:
    """Returns an error for an option that does not exist, or several of a group that takes one."""
    group, value = override.key_or_group, override.value()
    known = options(group)
    if isinstance(value, list) and group not in SEVERAL:
        return f"{_line(override)}: a run has one {group}; to try several use {command_line('sweep')}"
    option = next((one for one in (value if isinstance(value, list) else [value]) if one not in known), None)
    if option is None:
        return None
    own = own_folder()
    if own is not None and (own / group / f"{option}.yml").is_file():
        file = own / group / str(option)
        return f"{group}={option}: {file}.yml must be called {option}.yaml, Hydra reads no other ending"
    return f"{group}={option}: no such {group}; {did_you_mean(str(option), known, names=known)}"


def _unknown_key(key: str, known: set[str]) -> str:
    """Returns the error for a key that is not among the ``known`` ones, with the nearest one and its siblings."""
    above = f"{key.rpartition('.')[0]}."
    siblings = {other for other in known if other.startswith(above)} if above != "." else set()
    known = siblings or known | groups()
    names = {other.removeprefix(above if siblings else "").partition(".")[0] for other in known}
    return f"{key}: no such key; {did_you_mean(key, known, names={name for name in names if not name.startswith('_')})}"


def _first(sentences: Iterable[str | None]) -> str | None:
    return next((sentence for sentence in sentences if sentence is not None), None)


def _line(override: Override) -> str:
    return override.input_line or ""
