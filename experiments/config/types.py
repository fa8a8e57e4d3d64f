"""Checks names and types of the keys of a composed configuration: some part must read each key, and its value must fit.

The keys of a part with a ``_target_`` are the arguments of what it names, which is imported here but not built, so that
parts with large models are covered too. Those of other parts are in ``experiments/schema.py``.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass
from importlib import import_module
from math import inf
from pkgutil import resolve_name
from types import MappingProxyType, NoneType, UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from omegaconf import MISSING as UNSET, DictConfig, ListConfig
from omegaconf.errors import OmegaConfBaseException

from experiments.config.composition import parts
from experiments.config.hints import did_you_mean
from experiments.schema import ABOVE, LEAST, PARTS
from experiments.system.terminal import one_line

HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "_args_"}
KINDS: Mapping[Any, tuple[str, tuple[type, ...]]] = {
    int: ("a whole number", (int,)),
    float: ("a number", (int, float)),
    bool: ("true or false", (bool,)),
    str: ("a text", (str,)),
    NoneType: ("null", (NoneType,)),
    **dict.fromkeys((list, tuple, Sequence, Collection, Iterable), ("a list", (ListConfig,))),
    **dict.fromkeys((dict, Mapping), ("a mapping", (DictConfig,))),
}
"""Type in an annotation → its name in a message, and its types in a configuration."""
VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
TRAINER = "lightning.Trainer"
SET_BY_STAGES: Mapping[str, str] = {
    "max_steps": "budget.<stage>.steps",
    "max_epochs": "budget.<stage>.steps",
    "min_steps": "budget.<stage>.steps",
    "min_epochs": "budget.<stage>.steps",
    "val_check_interval": "budget.<stage>.evaluate_every",
    "check_val_every_n_epoch": "budget.<stage>.evaluate_every",
    "enable_checkpointing": "budget.<stage>.checkpoint_every",
    "log_every_n_steps": "budget.<stage>.log_every",
    "callbacks": "callbacks.<stage>",
    "logger": "logger",
    "default_root_dir": "output_dir",
    "gradient_clip_val": "module.gradient_clip (warm_start.module.gradient_clip, pretraining.gradient_clip)",
    "gradient_clip_algorithm": "module.gradient_clip, which clips by the norm",
    "accumulate_grad_batches": "budget.grpo.microbatch_tokens",
}
"""Argument of Lightning's trainer → the key to set instead. Stages set the first ones; modules step by hand."""


def flaws(config: DictConfig) -> Iterator[str]:
    """Yields one sentence for each unknown or missing key and invalid value of parts without ``_target_``.

    Also for each key of the trainer that the stages set. Nothing is imported for it.
    """
    for name, schema in PARTS.items():
        yield from _of_arguments(name, config[name], schema)
    for stage, best in config.checkpoints.best.items():
        if best is not None and len(best) != 1:
            yield f"checkpoints.best.{stage} must name one metric with min or max, got {best}"
    if config.trainer.get("_target_") == TRAINER:
        if config.trainer.get("enable_progress_bar") is False:
            yield "trainer.enable_progress_bar=False: the bar is a callback of the stages; progress=quiet shows none"
        if config.trainer.get("fast_dev_run"):
            yield "trainer.fast_dev_run: stages count their own steps; debug=fast makes a short run of all stages"
        for key, instead in SET_BY_STAGES.items():
            if (value := config.trainer.get(key)) is not None:
                yield f"trainer.{key}={value}: the stages set it; instead of it set {instead}"


def argument_flaws(config: DictConfig) -> Iterator[str]:
    """Yields one sentence for each target that is missing, and each argument that it does not take or that is missing.

    Also for plain values whose type does not fit the annotation. Imports the targets.
    """
    for path, part in parts(config):
        target = str(part._target_)
        try:
            taken: Any = resolve_name(target)
        except (ImportError, AttributeError, ValueError):
            yield f"{path}._target_={target}: {_why_missing(target)}"
            continue
        yield from _of_arguments(path, part, taken)


def _of_arguments(path: str, node: Any, taken: Any) -> Iterator[str]:
    """Yields the errors of a mapping whose keys are the arguments of ``taken``, a target or a class of the schema."""
    try:
        parameters = inspect.signature(taken).parameters
    except (TypeError, ValueError):  # no callable, or one of a C extension: building it will tell
        return
    named = {name: one for name, one in parameters.items() if one.kind not in VARIADIC}
    if not isinstance(node, DictConfig):
        yield f"{path} must be a mapping of {', '.join(named)}; got {node}"
        return
    partial = node.get("_partial_") or node.get("_args_")
    needed = [name for name, one in named.items() if one.default is inspect.Parameter.empty or one.default is UNSET]
    given = [str(key) for key in node if key not in HYDRA_KEYS]
    any_keyword = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in parameters.values())
    yield from _of_keys(path, given, known=given if any_keyword else named, required=[] if partial else needed)
    hints, bounds = _hints(taken), {one.name: one.metadata for one in fields(taken)} if is_dataclass(taken) else {}
    for name in named:
        if name not in hints or (value := _value(node, name)) is UNKNOWN:
            continue
        if is_dataclass(hints[name]) and not _is_target(value):
            yield from _of_arguments(f"{path}.{name}", value, hints[name])
        else:
            yield from _of_value(f"{path}.{name}", value, hints[name], bounds=bounds.get(name, {}))


def _hints(taken: Any) -> dict[str, Any]:
    """Returns the types of the arguments; none if an annotation names something that is imported for type checkers."""
    try:
        # a dataclass itself: its __init__ would look up the types of inherited fields in its own module
        constructed = isinstance(taken, type) and not is_dataclass(taken)
        return get_type_hints(taken.__init__ if constructed else taken)
    except (NameError, TypeError, AttributeError):
        return {}


def _why_missing(target: str) -> str:
    module, _, name = target.rpartition(".")
    if not module:
        return "it must name a module and what to build from it, such as my_rewards.brevity"
    try:
        found = import_module(module)
    except ModuleNotFoundError as missing:
        top = str(missing.name).partition(".")[0]
        if missing.name != top or not module.startswith(top):
            return one_line(missing)
        return f"there is no module {top!r}: write {top}.py here, or add its folder to PYTHONPATH"
    except ImportError as broken:
        return one_line(broken)
    return f"{module} has no {name}; {did_you_mean(name, [one for one in dir(found) if not one.startswith('_')])}"


def _of_keys(path: str, given: Collection[str], *, known: Collection[str], required: Collection[str]) -> Iterator[str]:
    for key in given:
        if key not in known:
            dotted = [f"{path}.{name}" for name in known]
            yield f"{path}.{key}: no such key; {did_you_mean(f'{path}.{key}', dotted, names=known)}"
    for name in required:
        if name not in given:
            yield f"{path}.{name} is missing; there must be {', '.join(required)}"


UNKNOWN = object()
"""Stands for a missing value or one whose reference cannot be resolved; other checks report both."""


def _value(node: DictConfig, key: str) -> Any:
    try:
        return node.get(key, UNKNOWN)
    except OmegaConfBaseException:
        return UNKNOWN


def _of_value(path: str, value: Any, hint: Any, *, bounds: Mapping[str, float] = MappingProxyType({})) -> Iterator[str]:
    """Yields the errors of a value whose type consists of ``KINDS`` and literals; others are not checked."""
    alternatives = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
    if _is_target(value) or any(_kind(one) is not Literal and _kind(one) not in KINDS for one in alternatives):
        return
    fitting = [one for one in alternatives if _fits(one, value)]
    number = value if isinstance(value, int | float) else inf
    # comparisons with NaN are false, so NaN violates every bound
    within = (LEAST not in bounds or number >= bounds[LEAST]) and (ABOVE not in bounds or number > bounds[ABOVE])
    if not fitting or not within:
        wanted = " or ".join(_in_words(one, bounds) for one in alternatives)
        yield f"{path} must be {wanted}, got {f'the text {value!r}' if isinstance(value, str) else value}"
    elif isinstance(value, DictConfig) and len(inner := get_args(fitting[0])) == 2:
        for key in value:
            yield from _of_value(f"{path}.{key}", _value(value, str(key)), inner[1])


def _is_target(value: Any) -> bool:
    return isinstance(value, DictConfig) and "_target_" in value  # which is checked by itself


def _kind(hint: Any) -> Any:
    return get_origin(hint) or hint


def _fits(hint: Any, value: Any) -> bool:
    if _kind(hint) is Literal:
        return value in get_args(hint)
    # bool is a subclass of int
    return isinstance(value, KINDS[_kind(hint)][1]) and (hint is bool or not isinstance(value, bool))


def _in_words(hint: Any, bounds: Mapping[str, float]) -> str:
    if _kind(hint) is Literal:
        return " or ".join(map(repr, get_args(hint)))
    least, above = (bounds.get(bound) if hint in (int, float) else None for bound in (LEAST, ABOVE))
    return KINDS[_kind(hint)][0] + (
        f" of at least {least}" if least is not None else f" above {above}" if above is not None else ""
    )
