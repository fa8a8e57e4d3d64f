"""Checks every key of a composed configuration: some part must read it, and its value must have a fitting type.

The keys of a part with a ``_target_`` are the arguments of its constructor, which are read from its source. Those of
other parts are in ``experiments/schema.py``. It does not matter where a key was set.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping
from dataclasses import MISSING, fields, is_dataclass
from math import inf
from types import MappingProxyType
from typing import Any, get_type_hints

from omegaconf import MISSING as UNSET
from omegaconf import DictConfig, ListConfig
from omegaconf.errors import OmegaConfBaseException

from experiments.config.composition import parts
from experiments.config.hints import did_you_mean
from experiments.config.signatures import missing_name, signature_of
from experiments.schema import ABOVE, LEAST, PARTS

HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "_args_"}
KINDS: Mapping[str, tuple[str, tuple[type, ...]]] = {
    "int": ("a whole number", (int,)),
    "float": ("a number", (int, float)),
    "bool": ("true or false", (bool,)),
    "str": ("a text", (str,)),
    "None": ("null", (type(None),)),
    **dict.fromkeys(("list", "tuple", "Sequence", "Collection", "Iterable"), ("a list", (ListConfig,))),
    **dict.fromkeys(("dict", "Mapping"), ("a mapping", (DictConfig,))),
}
"""Name in an annotation → its name in a message, and its types in a configuration."""
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


def unread_keys(config: DictConfig) -> Iterator[str]:
    """Yields the dotted path of every argument that the constructor of its part does not take."""
    for path, part in parts(config):
        signature = signature_of(str(part._target_))
        if signature is not None and not signature.any_keyword:
            yield from (f"{path}.{key}" for key in _arguments(part) if key not in signature.arguments)


def _arguments(part: DictConfig) -> list[str]:
    return [str(key) for key in part if key not in HYDRA_KEYS]


def flaws(config: DictConfig) -> Iterator[str]:
    """Yields one sentence for each unknown or missing key and each invalid value."""
    for name, schema in PARTS.items():
        yield from schema_flaws(name, config[name], schema)
    for stage, best in config.checkpoints.best.items():
        if best is not None and len(best) != 1:
            yield f"checkpoints.best.{stage} must name one metric with min or max, got {best}"
    for path, part in parts(config):
        yield from _of_target(path, part)
    if config.trainer.get("_target_") == TRAINER:
        for key, instead in SET_BY_STAGES.items():
            if (value := config.trainer.get(key)) is not None:
                yield f"trainer.{key}={value}: the stages set it; instead of it set {instead}"


def schema_flaws(path: str, node: Any, schema: type) -> Iterator[str]:
    """Yields the errors of a part without ``_target_``."""
    expected = {field.name: field for field in fields(schema)}
    if not isinstance(node, DictConfig):
        yield f"{path} must be a mapping of {', '.join(expected)}; got {node}"
        return
    required = [name for name, field in expected.items() if field.default in (MISSING, UNSET)]
    yield from _of_keys(path, [*map(str, node)], known=expected, required=required)
    hints = get_type_hints(schema)
    for name, field in expected.items():
        value = _value(node, name)
        if value is UNKNOWN:
            continue
        if is_dataclass(hint := hints[name]):
            yield from schema_flaws(f"{path}.{name}", value, hint)  # pyright: ignore[reportArgumentType]
        else:
            annotation = ast.parse(str(field.type), mode="eval").body
            yield from _of_value(f"{path}.{name}", value, annotation, bounds=field.metadata)


def _of_target(path: str, part: DictConfig) -> Iterator[str]:
    """Yields the errors of a part with a ``_target_``."""
    target = str(part._target_)
    if (reason := missing_name(target)) is not None:
        yield f"{path}._target_={target}: {reason}"
    signature = signature_of(target)
    if signature is None:
        return
    arguments = signature.arguments
    partial = part.get("_partial_") or part.get("_args_")
    required = [] if partial else [name for name, argument in arguments.items() if argument.required]
    given = _arguments(part)
    yield from _of_keys(path, given, known=given if signature.any_keyword else arguments, required=required)
    for name, argument in arguments.items():
        if argument.annotation is not None and (value := _value(part, name)) is not UNKNOWN:
            yield from _of_value(f"{path}.{name}", value, argument.annotation)


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


def _of_value(
    path: str, value: Any, annotation: ast.expr, *, bounds: Mapping[str, float] = MappingProxyType({})
) -> Iterator[str]:
    """Yields the errors of a value whose annotation consists of ``KINDS`` and literals; others are not checked."""
    alternatives = [*_alternatives(annotation)]
    if any(name not in KINDS and name != "Literal" for name, _ in alternatives):
        return
    fitting = [arguments for name, arguments in alternatives if _fits(name, arguments, value)]
    number = value if isinstance(value, int | float) else inf
    # comparisons with NaN are false, so NaN violates every bound
    within = (LEAST not in bounds or number >= bounds[LEAST]) and (ABOVE not in bounds or number > bounds[ABOVE])
    if not fitting or not within:
        wanted = " or ".join(_in_words(name, arguments, bounds) for name, arguments in alternatives)
        yield f"{path} must be {wanted}, got {f'the text {value!r}' if isinstance(value, str) else value}"
    elif isinstance(value, DictConfig) and len(fitting[0]) == 2:
        for key in value:
            yield from _of_value(f"{path}.{key}", _value(value, str(key)), fitting[0][1])


def _alternatives(annotation: ast.expr) -> Iterator[tuple[str, list[ast.expr]]]:
    """Yields each name of a union with the arguments in its brackets."""
    match annotation:
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            yield from (*_alternatives(left), *_alternatives(right))
        case ast.Subscript(value=ast.Name(id=name), slice=ast.Tuple(elts=arguments)):
            yield name, arguments
        case ast.Subscript(value=ast.Name(id=name), slice=argument):
            yield name, [argument]
        case ast.Name(id=name):
            yield name, []
        case _:
            yield ast.unparse(annotation), []


def _fits(name: str, arguments: list[ast.expr], value: Any) -> bool:
    if name == "Literal":
        return value in [argument.value for argument in arguments if isinstance(argument, ast.Constant)]
    if isinstance(value, DictConfig) and "_target_" in value:
        return True  # the part is checked by itself
    return isinstance(value, KINDS[name][1]) and (name == "bool" or not isinstance(value, bool))


def _in_words(name: str, arguments: list[ast.expr], bounds: Mapping[str, float]) -> str:
    if name == "Literal":
        return " or ".join(map(ast.unparse, arguments))
    least, above = (bounds.get(bound) if name in ("int", "float") else None for bound in (LEAST, ABOVE))
    return KINDS[name][0] + (
        f" of at least {least}" if least is not None else f" above {above}" if above is not None else ""
    )
